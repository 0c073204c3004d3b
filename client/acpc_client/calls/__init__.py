"""The service's methods and the messages of their requests. No I/O; both clients use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

if TYPE_CHECKING:
    from acpc_client.calls import methods, requests
    from acpc_client.calls.methods import Page, Rpc
    from acpc_client.calls.options import (
        LONGEST_S,
        CallOptions,
        CertifyOptions,
        PairedOptions,
        PairOptions,
        PlannerOptions,
        PoolOptions,
        ScoreOptions,
        ViewOptions,
        check_options,
        check_timeout,
        unsigned,
    )
    from acpc_client.calls.requests import Named, Pair
else:
    __getattr__, __dir__ = lazy_face(__name__)
