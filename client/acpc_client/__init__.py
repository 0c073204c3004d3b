"""Thin client of the ACPC diagnostic service: what an application embeds.

Nothing here imports torch, or what the workbench (``acpc_lab``) stands on. Modules are loaded when
a name of theirs is first used.
"""

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

if TYPE_CHECKING:
    from acpc.contract import (
        CHOICES,
        AnchorContents,
        AnchorPreview,
        AnchorSample,
        AnchorSet,
        AnchorValues,
        Brightness,
        CemBudget,
        CemReturn,
        CertifiedSeverity,
        Checkpoint,
        CheckpointRef,
        CheckpointScore,
        CheckpointState,
        CleanGaps,
        ColorJitter,
        Contrast,
        CostReduction,
        CoverageFinding,
        CoverageGoal,
        CoverageOutcome,
        CoverageStatement,
        CoverageStop,
        DatasetAnchors,
        DatasetFile,
        DefocusBlur,
        DestroyedActions,
        DistanceTerm,
        Doubt,
        DriftStudy,
        ErrorDrift,
        Evidence,
        EvidenceOptions,
        Gamma,
        GaussianBlur,
        GaussianNoise,
        GeometryStudy,
        GivenViews,
        Identity,
        Interval,
        IrSummary,
        JobState,
        Jpeg,
        LoadedCheckpoint,
        Look,
        LookStop,
        ModelCard,
        MotionBlur,
        Norm,
        NumericMode,
        Objective,
        Occlusion,
        Outcome,
        PairComparison,
        PairedIteration,
        PairedPlan,
        PairedPlans,
        PairResult,
        PartnerPast,
        Perturbation,
        PlannerStudy,
        PoolCertificate,
        PoolChoice,
        Progress,
        RandomShift,
        Reading,
        Receipt,
        Record,
        Registered,
        Resize,
        SampledPool,
        Score,
        ScoreProtocol,
        ScoreRequest,
        SelectionCertificate,
        SensitivityStudy,
        SequentialLooks,
        Shadow,
        SkipReason,
        SoftmaxBounds,
        StepCoverage,
        Study,
        TaskSummary,
        Thresholds,
        Timing,
        UntilDecided,
        Verdict,
        ViewCertificate,
        parse,
        parse_grid,
        severity_grid,
    )

    from acpc_client import errors
    from acpc_client.aio import AsyncAcpcClient, AsyncPlanSession, AsyncScoreJob, AsyncStudyJob
    from acpc_client.anchor_arrays import AnchorArrays, digest_of
    from acpc_client.calls import (
        CallOptions,
        CertifyOptions,
        PairedOptions,
        PairOptions,
        PlannerOptions,
        PoolOptions,
        ScoreOptions,
        ViewOptions,
    )
    from acpc_client.errors import AcpcError
    from acpc_client.files import read_npz, write_whole
    from acpc_client.inputs import Pair
    from acpc_client.planning import AsyncPolicy, Attempt, ControlStep, Decision, Policy, Pools
    from acpc_client.results import (
        RESULT_FORMATS,
        CalibratedThresholds,
        CalibrationScore,
        Operation,
        PairOutcome,
        Result,
        SelectionStep,
        StudyResult,
        UploadProgress,
        answered,
        load_result,
        load_thresholds,
        save_result,
        status_of,
    )
    from acpc_client.retries import Absence, RetryPolicy
    from acpc_client.sync import AcpcClient, PlanSession, ScoreJob, StudyJob
    from acpc_client.transport import (
        DEFAULT_TARGET,
        Access,
        ClientOptions,
        Tls,
        Token,
        access_from_environment,
        make_access,
    )
    from acpc_client.uploads import OnUpload
else:
    __getattr__, __dir__ = lazy_face(__name__)

__all__ = [
    "Absence", "Access", "AcpcClient", "AcpcError", "AnchorArrays", "AnchorContents",
    "AnchorPreview", "AnchorSample", "AnchorSet", "AnchorValues", "AsyncAcpcClient",
    "AsyncPlanSession", "AsyncPolicy", "AsyncScoreJob", "AsyncStudyJob", "Attempt", "Brightness",
    "CalibratedThresholds", "CalibrationScore", "CallOptions", "CemBudget", "CemReturn",
    "CertifiedSeverity", "CertifyOptions", "Checkpoint", "CheckpointRef", "CheckpointScore",
    "CheckpointState", "CleanGaps", "ClientOptions", "ColorJitter", "Contrast", "ControlStep",
    "CostReduction", "CoverageFinding", "CoverageGoal", "CoverageOutcome", "CoverageStatement",
    "CoverageStop", "DatasetAnchors", "DatasetFile", "Decision", "DefocusBlur", "DestroyedActions",
    "DistanceTerm", "Doubt", "DriftStudy", "ErrorDrift", "Evidence", "EvidenceOptions", "Gamma",
    "GaussianBlur", "GaussianNoise", "GeometryStudy", "GivenViews", "Identity", "Interval",
    "IrSummary", "JobState", "Jpeg", "LoadedCheckpoint", "Look", "LookStop", "ModelCard",
    "MotionBlur", "Norm", "NumericMode", "Objective", "Occlusion", "Operation", "Outcome", "Pair",
    "PairComparison", "PairOptions", "PairOutcome", "PairResult", "PairedIteration",
    "PairedOptions", "PairedPlan", "PairedPlans", "PartnerPast", "Perturbation", "PlanSession",
    "PlannerOptions", "PlannerStudy", "Policy", "PoolCertificate", "PoolChoice", "PoolOptions",
    "Pools", "Progress", "RandomShift", "Reading", "Receipt", "Registered", "Resize", "Result",
    "RetryPolicy", "SampledPool", "Score", "ScoreJob", "ScoreOptions", "ScoreProtocol",
    "ScoreRequest", "SelectionCertificate", "SelectionStep", "SensitivityStudy", "SequentialLooks",
    "Shadow", "SkipReason", "SoftmaxBounds", "StepCoverage", "StudyJob", "StudyResult",
    "TaskSummary", "Thresholds", "Timing", "Tls", "Token", "UntilDecided", "UploadProgress",
    "Verdict", "ViewCertificate", "ViewOptions", "access_from_environment", "errors", "load_result",
    "load_thresholds", "make_access", "save_result", "severity_grid",
]  # fmt: skip
