"""Frozen dataclasses that mirror the contract's answers."""

from acpc.contract import (
    CertifiedSeverity,
    Checkpoint,
    CheckpointState,
    ErrorDrift,
    LoadedCheckpoint,
    ModelCard,
    PairComparison,
    PairedIteration,
    PairedPlan,
    PairedPlans,
    PairResult,
    PoolCertificate,
    Receipt,
    Record,
    SampledPool,
    SelectionCertificate,
    Timing,
    ViewCertificate,
)

from acpc_client.results.anchors import AnchorSet, UploadProgress
from acpc_client.results.base import read_answer
from acpc_client.results.operations import JobState, Operation, Progress
from acpc_client.results.outcomes import PairOutcome
from acpc_client.results.requests import ScoreRequest
from acpc_client.results.scores import (
    AnchorPreview,
    AnchorValues,
    CheckpointScore,
    IrSummary,
    Outcome,
    Score,
    SkipReason,
    Verdict,
)
from acpc_client.results.studies import StudyResult
