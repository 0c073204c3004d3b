"""Joins models, perturbations, data and numerics into the answers the service gives."""

from acpc_server.diagnostics.anchor_readers import AnchorReaders
from acpc_server.diagnostics.certify import PoolAnswer, Selection, ViewCertificate, certify_pool
from acpc_server.diagnostics.compare import PairAnswer, PairComparison, PairRequest
from acpc_server.diagnostics.job_kind import JobKind, Json, Step
from acpc_server.diagnostics.paired_cem import CemBudget, PairedAnswer, PairedCem, PairedPlan
from acpc_server.diagnostics.plan import (
    AnchorSetSource,
    AnchorSource,
    AnySource,
    CheckpointName,
    JobPlan,
    Protocol,
    Role,
    ScorePlan,
    ScreenThresholds,
)
from acpc_server.diagnostics.planning import Planner, PlanningRequest, PlanningSession
from acpc_server.diagnostics.preview import AnchorPreview
from acpc_server.diagnostics.receipt import Receipt
from acpc_server.diagnostics.scoring import CheckpointScoring
from acpc_server.diagnostics.views import PerturbationPlan, View, Views

__all__ = [
    "AnchorPreview",
    "AnchorReaders",
    "AnchorSetSource",
    "AnchorSource",
    "AnySource",
    "CemBudget",
    "CheckpointName",
    "CheckpointScoring",
    "JobKind",
    "JobPlan",
    "Json",
    "PairAnswer",
    "PairComparison",
    "PairRequest",
    "PairedAnswer",
    "PairedCem",
    "PairedPlan",
    "PerturbationPlan",
    "Planner",
    "PlanningRequest",
    "PlanningSession",
    "PoolAnswer",
    "Protocol",
    "Receipt",
    "Role",
    "ScorePlan",
    "ScreenThresholds",
    "Selection",
    "Step",
    "View",
    "ViewCertificate",
    "Views",
    "certify_pool",
]
