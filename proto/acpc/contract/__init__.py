"""What the contract means, declared once for server and client: NumPy and protobuf only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

if TYPE_CHECKING:
    from acpc.contract.anchor_sets import (
        DIRECTIONS,
        MAX_EXTRA_ARRAYS,
        SMALL_ARRAYS,
        VIEWS,
        AnchorArray,
        AnchorContents,
        AnchorSet,
        anchors_digest,
        check_extra,
        endpoints_at,
        endpoints_digest,
        extra_digest,
        frame_digests,
        has_steps,
    )
    from acpc.contract.candidates import CandidatePool, OwnPool, PoolRequest, Proposal
    from acpc.contract.checkpoints import Checkpoint, CheckpointState, LoadedCheckpoint, ModelCard
    from acpc.contract.compositions import (
        KINDS,
        Composition,
        Perturbation,
        Spec,
        grids,
        read_spec,
    )
    from acpc.contract.coverage import (
        CoverageFinding,
        CoverageGoal,
        CoverageOutcome,
        CoverageStatement,
        CoverageStop,
        StepCoverage,
    )
    from acpc.contract.datasets import DatasetFile, TaskSummary
    from acpc.contract.enums import (
        AnchorSample,
        CemReturn,
        CostReduction,
        DestroyedActions,
        Norm,
        NumericMode,
        Outcome,
        PartnerPast,
        Reading,
        WireEnum,
    )
    from acpc.contract.errors import (
        Aborted,
        AcpcError,
        AlreadyExists,
        ArgumentError,
        Cancelled,
        DataLoss,
        DeadlineExceeded,
        FailedPrecondition,
        FieldViolation,
        Internal,
        InvalidArgument,
        NotFound,
        OutOfRange,
        PermissionDenied,
        ResourceExhausted,
        Unauthenticated,
        Unavailable,
        Unimplemented,
        Unknown,
        joined,
    )
    from acpc.contract.evidence import (
        MAX_RESAMPLES,
        Doubt,
        Evidence,
        EvidenceOptions,
        Interval,
        Look,
        LookStop,
        SequentialLooks,
        UntilDecided,
    )
    from acpc.contract.fields import (
        bounded,
        bounds_of,
        changed,
        check,
        given,
        seed_field,
        sized,
    )
    from acpc.contract.jobs import JobState, Progress, ScoreMetadata, StudyMetadata, StudyRows
    from acpc.contract.messages import Codec, Wire
    from acpc.contract.moments import (
        PairedRequest,
        PairRequest,
        PlanFrame,
        PlannerMoment,
        PlanStart,
        Views,
        goal_kind,
    )
    from acpc.contract.normal_form import normalise
    from acpc.contract.objectives import DistanceTerm, Objective
    from acpc.contract.optional import load_lab, load_optional, pyarrow
    from acpc.contract.pairs import ErrorDrift, PairComparison, PairResult
    from acpc.contract.perturbations import (
        Brightness,
        ColorJitter,
        Contrast,
        DefocusBlur,
        Gamma,
        GaussianBlur,
        GaussianNoise,
        Identity,
        Jpeg,
        MotionBlur,
        Occlusion,
        RandomShift,
        Resize,
        Shadow,
    )
    from acpc.contract.plain import from_json, from_plain, to_json, to_plain
    from acpc.contract.pools import (
        CertifiedSeverity,
        CleanGaps,
        PairedIteration,
        PairedPlan,
        PairedPlans,
        PoolCertificate,
        PoolChoice,
        SampledPool,
        SelectionCertificate,
        SoftmaxBounds,
        ViewCertificate,
    )
    from acpc.contract.provenance import Receipt, Timing, moment
    from acpc.contract.readings import digested, follows, reading_field, resolved
    from acpc.contract.record import Record
    from acpc.contract.requests import (
        MAX_ANCHORS,
        MAX_HORIZON,
        MAX_NAME,
        MAX_REQUEST_ID,
        AnchorSource,
        CemBudget,
        CheckpointRef,
        CreateRequest,
        DatasetAnchors,
        PerturbationSet,
        ScoreProtocol,
        Thresholds,
        UploadHeader,
        released_future_frames,
    )
    from acpc.contract.scene_changes import (
        Background,
        Cutout,
        Distractor,
        Haze,
        KnockedCamera,
        RandomConvolution,
        SaltAndPepper,
        Saturation,
        Stutter,
        Zoom,
    )
    from acpc.contract.scores import (
        AnchorPreview,
        AnchorPreviews,
        AnchorValues,
        CheckpointScore,
        IrSummary,
        Score,
        SkipReason,
        Verdict,
    )
    from acpc.contract.severities import (
        CHOICES,
        curve_of,
        example,
        kind_named,
        parse,
        parse_grid,
        severities_up_to,
        severity_grid,
        severity_range,
        strongest_of,
    )
    from acpc.contract.studies import (
        DriftStudy,
        GeometryStudy,
        PlannerStudy,
        ScoreRequest,
        SensitivityStudy,
        Study,
        StudyRequest,
    )
    from acpc.contract.suggestion import did_you_mean, nearest
    from acpc.contract.tabular import Columns, Tabular, cell, html_table
    from acpc.contract.tensor import DTYPES, Array, Axes, floats, frames, read_tensor, write_tensor
    from acpc.contract.visual_changes import GivenViews, Registered, VisualChange
else:
    __getattr__, __dir__ = lazy_face(__name__)

__all__ = [
    "CHOICES", "DIRECTIONS", "DTYPES", "KINDS", "MAX_ANCHORS", "MAX_EXTRA_ARRAYS", "MAX_HORIZON",
    "MAX_NAME", "MAX_REQUEST_ID", "MAX_RESAMPLES", "SMALL_ARRAYS", "VIEWS", "Aborted", "AcpcError",
    "AlreadyExists", "AnchorArray", "AnchorContents", "AnchorPreview", "AnchorPreviews",
    "AnchorSample", "AnchorSet", "AnchorSource", "AnchorValues", "ArgumentError", "Array", "Axes",
    "Background", "Brightness", "Cancelled", "CandidatePool", "CemBudget", "CemReturn",
    "CertifiedSeverity", "Checkpoint", "CheckpointRef", "CheckpointScore", "CheckpointState",
    "CleanGaps", "Codec", "ColorJitter", "Columns", "Composition", "Contrast", "CostReduction",
    "CoverageFinding", "CoverageGoal", "CoverageOutcome", "CoverageStatement", "CoverageStop",
    "CreateRequest", "Cutout", "DataLoss", "DatasetAnchors", "DatasetFile", "DeadlineExceeded",
    "DefocusBlur", "DestroyedActions", "DistanceTerm", "Distractor", "Doubt", "DriftStudy",
    "ErrorDrift", "Evidence", "EvidenceOptions", "FailedPrecondition", "FieldViolation", "Gamma",
    "GaussianBlur", "GaussianNoise", "GeometryStudy", "GivenViews", "Haze", "Identity", "Internal",
    "Interval", "InvalidArgument", "IrSummary", "JobState", "Jpeg", "KnockedCamera",
    "LoadedCheckpoint", "Look", "LookStop", "ModelCard", "MotionBlur", "Norm", "NotFound",
    "NumericMode", "Objective", "Occlusion", "OutOfRange", "Outcome", "OwnPool", "PairComparison",
    "PairRequest", "PairResult", "PairedIteration", "PairedPlan", "PairedPlans", "PairedRequest",
    "PartnerPast", "PermissionDenied", "Perturbation", "PerturbationSet", "PlanFrame", "PlanStart",
    "PlannerMoment", "PlannerStudy", "PoolCertificate", "PoolChoice", "PoolRequest", "Progress",
    "Proposal", "RandomConvolution", "RandomShift", "Reading", "Receipt", "Record", "Registered",
    "Resize", "ResourceExhausted", "SaltAndPepper", "SampledPool", "Saturation", "Score",
    "ScoreMetadata", "ScoreProtocol", "ScoreRequest", "SelectionCertificate", "SensitivityStudy",
    "SequentialLooks", "Shadow", "SkipReason", "SoftmaxBounds", "Spec", "StepCoverage", "Study",
    "StudyMetadata", "StudyRequest", "StudyRows", "Stutter", "Tabular", "TaskSummary", "Thresholds",
    "Timing", "Unauthenticated", "Unavailable", "Unimplemented", "Unknown", "UntilDecided",
    "UploadHeader", "Verdict", "ViewCertificate", "Views", "VisualChange", "Wire", "WireEnum",
    "Zoom", "anchors_digest", "bounded", "bounds_of", "changed", "check", "check_extra", "curve_of",
    "did_you_mean", "digested", "endpoints_at", "endpoints_digest", "example", "extra_digest",
    "floats", "follows", "frame_digests", "frames", "from_json", "from_plain", "given", "goal_kind",
    "grids", "has_steps", "html_table", "kind_named", "load_lab", "load_optional", "moment",
    "nearest", "normalise", "parse", "parse_grid", "pyarrow", "read_spec", "read_tensor",
    "reading_field", "released_future_frames", "resolved", "seed_field", "severities_up_to",
    "severity_grid", "severity_range", "sized", "strongest_of", "to_json", "to_plain",
    "write_tensor",
]  # fmt: skip
