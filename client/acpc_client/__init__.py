"""Thin client of the ACPC diagnostic service: what an application embeds.

Nothing here imports torch, or what the workbench (``acpc_lab``) stands on.
"""

from acpc_client import errors
from acpc_client.aio import AsyncAcpcClient, AsyncPlanSession, AsyncScoreJob, AsyncStudyJob
from acpc_client.anchor_arrays import SMALL, AnchorArrays, digest_of
from acpc_client.errors import AcpcError
from acpc_client.files import write_whole
from acpc_client.inputs import (
    CemBudget,
    CemReturn,
    CheckpointRef,
    CostReduction,
    DatasetAnchors,
    NumericMode,
    Pair,
    ScoreProtocol,
    Thresholds,
)
from acpc_client.perturbations import (
    Brightness,
    ColorJitter,
    Contrast,
    DefocusBlur,
    GaussianBlur,
    GaussianNoise,
    Identity,
    Jpeg,
    MotionBlur,
    Occlusion,
    Perturbation,
    RandomShift,
    Registered,
    Resize,
)
from acpc_client.results import (
    AnchorPreview,
    AnchorSet,
    AnchorValues,
    CertifiedSeverity,
    Checkpoint,
    CheckpointScore,
    CheckpointState,
    ErrorDrift,
    IrSummary,
    JobState,
    LoadedCheckpoint,
    ModelCard,
    Operation,
    Outcome,
    PairComparison,
    PairedIteration,
    PairedPlan,
    PairedPlans,
    PairOutcome,
    PairResult,
    PoolCertificate,
    Progress,
    Receipt,
    Record,
    SampledPool,
    Score,
    ScoreRequest,
    SelectionCertificate,
    SkipReason,
    StudyResult,
    Timing,
    UploadProgress,
    Verdict,
    ViewCertificate,
)
from acpc_client.retries import RetryPolicy
from acpc_client.severities import CHOICES, parse, parse_grid, severity_grid
from acpc_client.study_inputs import (
    DriftStudy,
    GeometryStudy,
    PlannerStudy,
    SensitivityStudy,
    Study,
)
from acpc_client.sync import AcpcClient, PlanSession, ScoreJob, StudyJob
from acpc_client.transport import DEFAULT_TARGET, Tls
from acpc_client.uploads import OnUpload
