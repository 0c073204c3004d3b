"""The service's methods and the messages of their requests. No I/O; both clients use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

NAMES = {
    "methods": "Page Rpc",
    "names": "unknown_attribute",
    "options": """
        CallOptions CertifyOptions LONGEST_S Named PairOptions PairedOptions PlannerOptions
        PoolOptions ScoreOptions ViewOptions check_options check_timeout unsigned""",
    "requests": "Pair",
}
if TYPE_CHECKING:
    from acpc_client.calls import methods, requests
    from acpc_client.calls.methods import *
    from acpc_client.calls.names import *
    from acpc_client.calls.options import *
    from acpc_client.calls.requests import *
else:
    __getattr__, __dir__ = lazy_face(__name__, NAMES)
