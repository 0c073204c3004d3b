"""Thin client of the ACPC diagnostic service: what an application embeds.

Nothing here imports torch, or what the workbench (``acpc_lab``) stands on. Modules are loaded when
a name of theirs is first used.
"""

# ruff: noqa: I001 - one name a line is too long
from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

NAMES = {
    "acpc.contract": """
        AnchorArrays AnchorContents AnchorPreview AnchorSample AnchorSet AnchorValues ApplyTo
        CHOICES CemBudget CemReturn CertifiedSeverity Checkpoint CheckpointRef CheckpointScore
        CheckpointState CleanGaps Composition CostReduction DatasetAnchors DatasetFile
        DestroyedActions DistanceTerm Doubt DrawsBound DriftStudy ErrorDrift Evidence
        EvidenceOptions Fit FitCause FitOutcome GeometryStudy GivenViews Interval IrSummary JobState
        LoadedCheckpoint Look LookStop
        ModelCard Norm NumericMode Objective Outcome PairComparison PairResult PairedIteration
        PairedPlan PairedPlans PartnerPast Perturbation PlannerStudy PoolCertificate
        PoolChoice Population PopulationEvidence Progress Reading Receipt Record Registered
        SampledPool Score ScoreProtocol ScoreRequest SelectionCertificate SensitivityStudy
        SequentialLooks SkipReason SoftmaxBounds Study TaskSummary Thresholds Timing
        UntilDecided Verdict ViewCertificate judge_again parse parse_grid severities_up_to
        severity_grid digest_of""",
    "acpc_client": "errors",
    "aio": "AsyncAcpcClient AsyncPlanSession AsyncScoreJob AsyncStudyJob",
    "acpc_client.calls.options": """
        CallOptions CertifyOptions PairOptions PairedOptions PlannerOptions PoolOptions
        ScoreOptions ViewOptions""",
    "acpc_client.calls.requests": "Pair",
    "errors": "AcpcError",
    "files": "read_npz write_whole",
    "acpc_client.results.answers": "Operation PairOutcome StudyResult UploadProgress",
    "acpc_client.results.calibrated": "CalibratedThresholds CalibrationScore SelectionStep",
    "acpc_client.results.documents": "Result answered status_of",
    "acpc_client.results.files": "RESULT_FORMATS load_result load_thresholds save_result",
    "retries": "Absence RetryPolicy",
    "sync": "AcpcClient PlanSession ScoreJob StudyJob",
    "acpc_client.transport.access": """
        Access ClientOptions Token access_from_environment make_access""",
    "acpc_client.transport.base": "DEFAULT_TARGET",
    "acpc_client.transport.channel": "Tls",
    "uploads": "OnUpload",
}
if TYPE_CHECKING:  # what the table says, for type checkers
    from acpc.contract import (
        CHOICES, AnchorArrays, AnchorContents, AnchorPreview, AnchorSample, AnchorSet,
        AnchorValues, ApplyTo, CemBudget, CemReturn, CertifiedSeverity, Checkpoint,
        CheckpointRef, CheckpointScore, CheckpointState, CleanGaps, Composition, CostReduction,
        DatasetAnchors, DatasetFile, DestroyedActions, DistanceTerm, Doubt, DrawsBound, DriftStudy,
        ErrorDrift, Evidence, EvidenceOptions, Fit, FitCause, FitOutcome, GeometryStudy, GivenViews,
        Interval, IrSummary, JobState, LoadedCheckpoint, Look, LookStop, ModelCard, Norm,
        NumericMode, Objective, Outcome,
        PairComparison, PairedIteration, PairedPlan, PairedPlans, PairResult, PartnerPast,
        Perturbation, PlannerStudy, PoolCertificate, PoolChoice, Population,
        PopulationEvidence, Progress, Reading, Receipt, Record, Registered, SampledPool,
        Score, ScoreProtocol, ScoreRequest, SelectionCertificate, SensitivityStudy,
        SequentialLooks, SkipReason, SoftmaxBounds, Study, TaskSummary, Thresholds, Timing,
        UntilDecided, Verdict, ViewCertificate, judge_again, parse, parse_grid,
        severities_up_to, severity_grid, digest_of,
    )  # fmt: skip
    from acpc.contract.perturbations import *
    from acpc_client import errors
    from acpc_client.aio import AsyncAcpcClient, AsyncPlanSession, AsyncScoreJob, AsyncStudyJob
    from acpc_client.calls.options import (
        CallOptions, CertifyOptions, PairedOptions, PairOptions, PlannerOptions, PoolOptions,
        ScoreOptions, ViewOptions,
    )  # fmt: skip
    from acpc_client.calls.requests import Pair
    from acpc_client.errors import AcpcError
    from acpc_client.files import read_npz, write_whole
    from acpc_client.results.answers import Operation, PairOutcome, StudyResult, UploadProgress
    from acpc_client.results.calibrated import (
        CalibratedThresholds, CalibrationScore, SelectionStep,
    )  # fmt: skip
    from acpc_client.results.documents import Result, answered, status_of
    from acpc_client.results.files import (
        RESULT_FORMATS, load_result, load_thresholds, save_result,
    )  # fmt: skip
    from acpc_client.retries import Absence, RetryPolicy
    from acpc_client.sync import AcpcClient, PlanSession, ScoreJob, StudyJob
    from acpc_client.transport.access import (
        Access, ClientOptions, Token, access_from_environment, make_access,
    )  # fmt: skip
    from acpc_client.transport.base import DEFAULT_TARGET
    from acpc_client.transport.channel import Tls
    from acpc_client.uploads import OnUpload
else:
    __getattr__, __dir__ = lazy_face(__name__, NAMES, "acpc.contract.perturbations")
