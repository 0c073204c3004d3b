"""The service's methods: request in, typed answer out. No I/O; both clients use them."""

from acpc_client.calls import anchors, checkpoints, datasets, diagnostics, jobs, planning, studies
from acpc_client.calls.base import Call, Method, Page
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
