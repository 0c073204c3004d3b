"""The service's methods: request in, typed answer out. No I/O; both clients use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

if TYPE_CHECKING:
    from acpc_client.calls import anchors, checkpoints, diagnostics, jobs
    from acpc_client.calls.call import (
        LONGEST_S,
        CallOptions,
        CertifyOptions,
        Method,
        Page,
        PairedOptions,
        PairOptions,
        PlannerOptions,
        PoolOptions,
        PreparedCall,
        ScoreOptions,
        ViewOptions,
        check_options,
    )
    from acpc_client.calls.jobs import Named
else:
    __getattr__, __dir__ = lazy_face(__name__)
