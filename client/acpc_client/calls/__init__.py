"""The service's methods: request in, typed answer out. No I/O; both clients use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

if TYPE_CHECKING:
    from acpc_client.calls import (
        anchors,
        checkpoints,
        datasets,
        diagnostics,
        jobs,
        planning,
        studies,
    )
    from acpc_client.calls.call import Call, Method, Page
    from acpc_client.calls.jobs import Named
    from acpc_client.calls.options import (
        CallOptions,
        CertifyOptions,
        PairedOptions,
        PairOptions,
        PlannerOptions,
        PoolOptions,
        ScoreOptions,
        ViewOptions,
        check_options,
    )
else:
    __getattr__, __dir__ = lazy_face(__name__)
