"""Comparisons, certificates and planning sessions, answered while the caller waits."""

from acpc_server.interactive.certify import (
    PoolAnswer,
    Selection,
    ViewCertificate,
    certify_pool,
    check_pool,
    selection_parameters,
)
from acpc_server.interactive.compare import PairAnswer, PairComparison, PairRequest
from acpc_server.interactive.paired_cem import (
    CemBudget,
    PairedAnswer,
    PairedCem,
    PairedPlan,
    Returns,
    check_budget,
)
from acpc_server.interactive.planning import Planner, PlanningRequest, PlanningSession
