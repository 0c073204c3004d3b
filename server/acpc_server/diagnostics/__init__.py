"""Joins models, perturbations, data and numerics into the answers the service gives."""

from acpc_server.diagnostics.compare import PairAnswer, PairComparison, PairRequest
from acpc_server.diagnostics.plan import (
    AnchorSource,
    CheckpointName,
    Protocol,
    Role,
    ScorePlan,
    ScreenThresholds,
)
from acpc_server.diagnostics.receipt import Receipt
from acpc_server.diagnostics.scoring import CheckpointScoring
from acpc_server.diagnostics.views import PerturbationPlan

__all__ = [
    "AnchorSource",
    "CheckpointName",
    "CheckpointScoring",
    "PairAnswer",
    "PairComparison",
    "PairRequest",
    "PerturbationPlan",
    "Protocol",
    "Receipt",
    "Role",
    "ScorePlan",
    "ScreenThresholds",
]
