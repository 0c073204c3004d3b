"""What the contract means, declared once for server and client: NumPy and protobuf only."""
# mypy: disable-error-code="no-redef"

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

NAMES = {
    "acpc.contract": "perturbations",
    "anchor_arrays": """
        AnchorArrays CUT_BYTES DIRECTIONS Form Frames MAX_EXTRA_ARRAYS SMALL_ARRAYS VIEWS
        check_array check_arrays extra_array has_steps""",
    "anchor_sets": """
        AnchorArray AnchorContents AnchorSet anchors_digest digest_of endpoints_at
        endpoints_digest extra_digest frame_digests""",
    "answers": """
        CertifiedSeverity CleanGaps DrawsBound ErrorDrift PairComparison PairResult
        PairedIteration PairedPlan PairedPlans PoolCertificate PoolChoice SampledPool
        SelectionCertificate SoftmaxBounds ViewCertificate""",
    "compositions": "Composition KINDS Perturbation grids read_spec",
    "enums": """
        AnchorSample ApplyTo CemReturn CostReduction DestroyedActions JobState Norm NumericMode
        Outcome PartnerPast Reading WireEnum""",
    "errors": """
        Aborted AcpcError AlreadyExists ArgumentError Cancelled DataLoss DeadlineExceeded
        FailedPrecondition FieldViolation Internal InvalidArgument NotFound OutOfRange
        PermissionDenied ResourceExhausted Unauthenticated Unavailable Unimplemented Unknown
        below joined""",
    "evidence": """
        CAUSES Doubt Evidence EvidenceOptions Fit FitCause FitOutcome Interval Look LookStop
        MAX_RESAMPLES Population PopulationEvidence SequentialLooks UntilDecided""",
    "fields": "Frozen bounded bounds_of changed check shared",
    "help": "about did_you_mean load_optional nearest",
    "messages": "Codec Wire",
    "moments": """
        CandidatePool DistanceTerm Objective OwnPool PairRequest PairedRequest PlanStart
        PlannerMoment PoolRequest Proposal Views applied_to""",
    "normal_form": "digested resolved",
    "numbers": "Gauge Group NUMBERS Place TITLES",
    "plain": "from_json from_plain field_from_plain measured to_json to_plain",
    "provenance": "Receipt Timing moment",
    "record": "Columns Record Tabular beside cell columns_of ends percent text_table",
    "requests": """
        AnchorSource CemBudget CheckpointRef CreateRequest DatasetAnchors MAX_ANCHORS
        MAX_HORIZON MAX_REQUEST_ID PerturbationSet ScoreProtocol Thresholds UploadHeader
        released_future_frames""",
    "scores": """
        AnchorPreview AnchorPreviews AnchorValues CheckpointScore IrSummary Score SkipReason
        Verdict""",
    "served": """
        Checkpoint CheckpointState DatasetFile LoadedCheckpoint ModelCard TaskSummary
        WEIGHTS_SUFFIXES is_weights_name""",
    "severities": """
        CHOICES GRADED curve_of example examples_of kind_named parse parse_grid
        severities_up_to severity_grid severity_range unchanged""",
    "studies": """
        DriftStudy GeometryStudy PlannerStudy Progress ScoreMetadata ScoreRequest
        SensitivityStudy Study StudyMetadata StudyRequest StudyRows""",
    "tensor": "Array Axes DTYPES read_tensor write_tensor",
    "verdicts": """
        check_score confident_outcome delta_interval judge_again relative_ir score_interval
        screen screen_score unless_misfit""",
    "visual_changes": "GivenViews Registered VisualChange",
}
if TYPE_CHECKING:
    from acpc.contract.anchor_arrays import *
    from acpc.contract.anchor_sets import *
    from acpc.contract.answers import *
    from acpc.contract.compositions import *
    from acpc.contract.enums import *
    from acpc.contract.errors import *
    from acpc.contract.evidence import *
    from acpc.contract.fields import *
    from acpc.contract.help import *
    from acpc.contract.messages import *
    from acpc.contract.moments import *
    from acpc.contract.normal_form import *
    from acpc.contract.numbers import *
    from acpc.contract.perturbations import *
    from acpc.contract.plain import *
    from acpc.contract.provenance import *
    from acpc.contract.record import *
    from acpc.contract.requests import *
    from acpc.contract.scores import *
    from acpc.contract.served import *
    from acpc.contract.severities import *
    from acpc.contract.studies import *
    from acpc.contract.tensor import *
    from acpc.contract.verdicts import *
    from acpc.contract.visual_changes import *
else:
    __getattr__, __dir__ = lazy_face(__name__, NAMES, "acpc.contract.perturbations")
