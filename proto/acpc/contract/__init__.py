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
    from acpc.contract.answers import (
        CertifiedSeverity,
        CleanGaps,
        DrawsBound,
        ErrorDrift,
        PairComparison,
        PairedIteration,
        PairedPlan,
        PairedPlans,
        PairResult,
        PoolCertificate,
        PoolChoice,
        SampledPool,
        SelectionCertificate,
        SoftmaxBounds,
        ViewCertificate,
    )
    from acpc.contract.checkpoint_files import WEIGHTS_SUFFIXES, is_weights_name
    from acpc.contract.compositions import (
        KINDS,
        Composition,
        Perturbation,
        grids,
        read_spec,
    )
    from acpc.contract.enums import (
        AnchorSample,
        CemReturn,
        CostReduction,
        DestroyedActions,
        JobState,
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
        below,
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
        Population,
        PopulationEvidence,
        SequentialLooks,
        UntilDecided,
    )
    from acpc.contract.fields import (
        bounded,
        bounds_of,
        changed,
        check,
    )
    from acpc.contract.help import about, did_you_mean, load_lab, load_optional, nearest
    from acpc.contract.messages import Codec, Wire
    from acpc.contract.moments import (
        CandidatePool,
        OwnPool,
        PairedRequest,
        PairRequest,
        PlannerMoment,
        PlanStart,
        PoolRequest,
        Proposal,
        Views,
    )
    from acpc.contract.normal_form import digested, resolved
    from acpc.contract.objective import DistanceTerm, Objective
    from acpc.contract.perturbations import (
        Background,
        Brightness,
        ColorJitter,
        Contrast,
        Cutout,
        DefocusBlur,
        Distractor,
        Gamma,
        GaussianBlur,
        GaussianNoise,
        Haze,
        Identity,
        Jpeg,
        KnockedCamera,
        MotionBlur,
        Occlusion,
        RandomConvolution,
        RandomShift,
        Resize,
        SaltAndPepper,
        Saturation,
        Shadow,
        Stutter,
        Zoom,
    )
    from acpc.contract.plain import from_json, from_plain, to_json, to_plain
    from acpc.contract.provenance import Receipt, Timing, moment
    from acpc.contract.record import (
        Columns,
        Record,
        Tabular,
        beside,
        cell,
        columns_of,
        ends,
        percent,
    )
    from acpc.contract.requests import (
        MAX_ANCHORS,
        MAX_HORIZON,
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
    from acpc.contract.served import (
        Checkpoint,
        CheckpointState,
        DatasetFile,
        LoadedCheckpoint,
        ModelCard,
        TaskSummary,
    )
    from acpc.contract.severities import (
        CHOICES,
        GRADED,
        curve_of,
        example,
        examples_of,
        kind_named,
        parse,
        parse_grid,
        severities_up_to,
        severity_grid,
        severity_range,
        unchanged,
    )
    from acpc.contract.sound import check_score
    from acpc.contract.studies import (
        DriftStudy,
        GeometryStudy,
        PlannerStudy,
        Progress,
        ScoreMetadata,
        ScoreRequest,
        SensitivityStudy,
        Study,
        StudyMetadata,
        StudyRequest,
        StudyRows,
    )
    from acpc.contract.tensor import DTYPES, Array, Axes, read_tensor, write_tensor
    from acpc.contract.visual_changes import GivenViews, Registered, VisualChange
else:
    __getattr__, __dir__ = lazy_face(__name__)
