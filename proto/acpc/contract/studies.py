"""Jobs: what is asked, of a score or a study; where a job is; the rows of a study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Annotated, ClassVar, TypeAlias

from acpc.contract.compositions import Perturbation, Spec
from acpc.contract.enums import (
    CemReturn,
    CostReduction,
    DestroyedActions,
    JobState,
    NumericMode,
    Reading,
)
from acpc.contract.errors import ArgumentError
from acpc.contract.evidence import MAX_WEIGHTS, EvidenceOptions, UntilDecided
from acpc.contract.fields import bounded, seed_field
from acpc.contract.messages import Codec, Wire
from acpc.contract.normal_form import follows, reading_field
from acpc.contract.perturbations import GaussianNoise
from acpc.contract.provenance import Receipt, Timing
from acpc.contract.record import Record
from acpc.contract.requests import (
    MAX_ANCHORS,
    MAX_LOGGED,
    MAX_REQUEST_ID,
    MAX_SPECS,
    USUAL_ANCHORS,
    CemBudget,
    CheckpointRef,
    DatasetAnchors,
    Request,
    ScoreProtocol,
    Thresholds,
    check_views,
)
from acpc.contract.tensor import Array, read_tensor, tensor_fields
from acpc.contract.visual_changes import check_group
from acpc.v1 import scoring_service_pb2 as pb
from acpc.v1 import study_service_pb2 as study_pb

MAX_STUDY_VIEWS = 1000
"""Views of one anchor of a study; their frames are there at once."""


def _noise(*sigmas: float) -> tuple[Perturbation, ...]:
    specs: tuple[Perturbation, ...] = bounded(
        tuple(GaussianNoise(sigma) for sigma in sigmas), least=1, most=MAX_SPECS
    )
    return specs


class _Study(Request):
    """Fields of every study, and what anchors are where the request leaves it open."""

    kind: ClassVar[str]
    anchor_count: ClassVar[int] = 100
    one_per_episode: ClassVar[bool] = False

    @property
    def default_count(self) -> int:
        """Anchors of a dataset where the request leaves it open."""
        return self.anchor_count


class _Shifted(_Study):
    """A study of perturbed views."""

    shifts: tuple[Perturbation, ...]
    draws: int

    def check_rules(self) -> None:
        """Views are bounded by the product."""
        check_views(self.draws, len(self.shifts), MAX_STUDY_VIEWS)


class DriftStudy(_Shifted, Wire[study_pb.DriftStudy]):
    kind = "drift"
    one_per_episode: ClassVar[bool] = True
    shifts: tuple[Spec, ...] = _noise(0.02, 0.05, 0.08)
    draws: int = bounded(2, ge=1, le=MAX_STUDY_VIEWS)
    seed: int = seed_field()
    horizon: int = bounded(8, ge=2, le=MAX_LOGGED)
    groups: int = bounded(16, ge=2, le=1000)
    destroyed: DestroyedActions = follows(
        paper=DestroyedActions.FUTURE, released=DestroyedActions.WINDOW
    )
    reading: Reading = reading_field()

    @property
    def default_count(self) -> int:
        """One anchor per group in the released reading."""
        return self.groups if self.reading is Reading.RELEASED else self.anchor_count


class PlannerStudy(_Shifted, Wire[study_pb.PlannerStudy]):
    kind = "planner"
    one_per_episode: ClassVar[bool] = True
    shifts: tuple[Spec, ...] = _noise(0.02, 0.05, 0.08)
    draws: int = bounded(1, ge=1, le=MAX_STUDY_VIEWS)
    seed: int = seed_field()
    budget: CemBudget = CemBudget()
    sampling_seed: int = seed_field()
    cost_reduction: CostReduction = field(
        default=CostReduction.MEAN, metadata={"json": "reduction"}
    )
    returns: CemReturn = CemReturn.MEAN
    history: int = bounded(1, ge=1, le=MAX_LOGGED)
    goal_offset: int | None = bounded(None, ge=1, le=MAX_LOGGED)
    reading: Reading = reading_field()


class GeometryStudy(_Shifted, Wire[study_pb.GeometryStudy]):
    kind = "geometry"
    anchor_count: ClassVar[int] = 128
    shifts: tuple[Spec, ...] = _noise(0.01, 0.04, 0.08)
    draws: int = bounded(6, ge=1, le=MAX_STUDY_VIEWS)
    seed: int = seed_field()
    horizon: int = bounded(8, ge=1, le=MAX_LOGGED)
    motion: bool = field(default=False, metadata={"paper": False})


class SensitivityStudy(_Study, Wire[study_pb.SensitivityStudy]):
    kind = "sensitivity"
    probes: int = bounded(8, ge=1, le=1000)
    seed: int = seed_field()
    horizon: int = bounded(8, ge=1, le=MAX_LOGGED)
    step: float = bounded(0.001, gt=0, le=1, unit="pixel units")
    directions: str = bounded("", most=100, paper="")

    def check_rules(self) -> None:
        """The group's name may be one."""
        if self.directions:
            check_group(self.directions, "directions")


Study: TypeAlias = DriftStudy | PlannerStudy | GeometryStudy | SensitivityStudy


class ScoreRequest(Request, Record, Wire[pb.ScoreCheckpointRequest]):
    checkpoint: CheckpointRef
    anchors: DatasetAnchors | str | None
    shift: Spec = field(metadata={"wire": "perturbation"})
    reference: CheckpointRef | None = None
    protocol: ScoreProtocol = ScoreProtocol()
    thresholds: Thresholds = Thresholds()
    numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT
    request_id: str = bounded("", most=MAX_REQUEST_ID)
    evidence: EvidenceOptions = EvidenceOptions()
    until_decided: UntilDecided | None = None

    def check_rules(self) -> None:
        """Anchors are needed, 2 at least, and as many as a batch has."""
        _check_anchors(self.anchors)
        if isinstance(self.anchors, DatasetAnchors):
            count = USUAL_ANCHORS if self.open_count else self.anchors.resolved().count
            self.check_looks(count)

    @property
    def open_count(self) -> bool:
        """Whether neither the anchors have a number nor the protocol a name that has one."""
        drawn = isinstance(self.anchors, DatasetAnchors) and self.anchors.count is None
        return drawn and self.protocol.reading is Reading.SERVER_DEFAULT

    def decided(self) -> ScoreRequest:
        """The same request, measured until it is decided where the number of anchors is open."""
        if not self.open_count or not isinstance(self.anchors, DatasetAnchors):
            return self
        anchors = replace(self.anchors, count=USUAL_ANCHORS)
        return replace(self, anchors=anchors, until_decided=self.until_decided or UntilDecided())

    def check_looks(self, count: int) -> None:
        """Checks that ``count`` anchors can be resampled, and measured until it is decided."""
        most = MAX_WEIGHTS // count
        if self.evidence.resamples > most:
            found = f"found {self.evidence.resamples} of {count} anchors"
            raise ArgumentError("evidence.resamples", f"{found}, wanted at most {most}")
        if self.until_decided is not None and self.until_decided.batch > count:
            found = f"found {self.until_decided.batch}, wanted at most the {count} anchors"
            raise ArgumentError("until_decided.batch", found)


class StudyRequest(Request, Wire[study_pb.RunStudyRequest]):
    checkpoint: CheckpointRef
    anchors: DatasetAnchors | str | None
    study: Study | None
    numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT
    request_id: str = bounded("", most=MAX_REQUEST_ID)

    def check_rules(self) -> None:
        """A study and anchors are needed, 2 at least; a set, for directions of its own."""
        if self.study is None:
            raise ArgumentError("drift", "choose a study: drift, planner, geometry or sensitivity")
        _check_anchors(self.anchors)
        given = isinstance(self.study, SensitivityStudy) and self.study.directions
        if given and isinstance(self.anchors, DatasetAnchors):
            raise ArgumentError(
                f"{self.study.kind}.directions",
                "a dataset's anchors have no given directions; upload an anchor set with them",
            )


def _check_anchors(anchors: DatasetAnchors | str | None) -> None:
    if anchors is None:
        raise ArgumentError(
            "dataset", "name a dataset to draw anchors from, or give the digest of an anchor_set"
        )
    if isinstance(anchors, DatasetAnchors) and anchors.count == 1:
        raise ArgumentError("dataset.count", f"found 1, wanted 2 to {MAX_ANCHORS}")


class Progress(Record, Wire[pb.Progress], eq=True):
    phase: str
    completed: int
    total: int
    seconds_left: float | None
    steps_per_second: float | None = None

    @classmethod
    def at(
        cls, phase: str, completed: int, total: int, steps_per_second: float | None = None
    ) -> Progress:
        """The progress with the seconds left at that rate."""
        left = total - completed
        seconds = left / steps_per_second if left and steps_per_second else None
        return cls(phase, completed, total, seconds if left else 0.0, steps_per_second)


class JobLife(Record, kw_only=True):
    """State of a job of any kind, with its progress."""

    create_time: datetime | None
    start_time: datetime | None = None
    end_time: datetime | None = None
    progress: Progress
    attempts: int
    timing: Timing | None = None
    state: JobState
    caller: str = ""
    phase_seconds: Mapping[str, float] = field(default_factory=dict)


class ScoreMetadata(JobLife, Wire[pb.ScoreCheckpointMetadata], kw_only=True):
    checkpoint: CheckpointRef
    request: ScoreRequest | None = None


class StudyMetadata(JobLife, Wire[study_pb.RunStudyMetadata], kw_only=True):
    request: StudyRequest


def _load_arrays(held: Iterable[study_pb.NamedTensor], *, strict: bool) -> dict[str, Array]:
    return {item.name: read_tensor(item.values, item.name) for item in held}


def _dump_arrays(arrays: Mapping[str, Array]) -> list[dict[str, object]]:
    return [{"name": name, "values": tensor_fields(x, name)} for name, x in arrays.items()]


Arrays = Annotated[Mapping[str, Array], Codec(_load_arrays, _dump_arrays)]


class StudyRows(Record, Wire[study_pb.RunStudyResponse]):
    checkpoint: CheckpointRef
    columns: Arrays
    arrays: Arrays
    receipt: Receipt
    request: StudyRequest
