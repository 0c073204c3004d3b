"""Comparisons, certificates and planning sessions, answered while the caller waits."""

from acpc_server.interactive.certify import (
    certify_pool,
    check_pool,
    draw_pool,
    selection_parameters,
)
from acpc_server.interactive.compare import PairComparer, PairRequest
from acpc_server.interactive.paired_cem import (
    RETURNS,
    PairedCem,
)
from acpc_server.interactive.planning import REDUCTIONS, Planner, PlanningRequest, PlanningSession
