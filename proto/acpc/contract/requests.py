"""What requests hold beside arrays: each value once, with its range and its default.

The defaults are the paper's protocol. ``acpc.contract.check`` compares a request with the ranges.
"""

from __future__ import annotations

import re
from dataclasses import replace

from acpc.contract.compositions import Spec
from acpc.contract.enums import AnchorSample, ApplyTo, PartnerPast, Reading
from acpc.contract.errors import ArgumentError
from acpc.contract.fields import UINT32, Frozen, bounded, seed_field
from acpc.contract.messages import Wire
from acpc.contract.normal_form import follows, normalise, reading_field
from acpc.v1 import (
    anchor_service_pb2,
    diagnostic_service_pb2,
    perturbation_pb2,
    receipt_pb2,
    scoring_service_pb2,
)

MAX_NAME = 1024
MAX_REQUEST_ID = 128
MAX_ANCHORS = 100_000
PAPER_ANCHORS = 100
USUAL_ANCHORS = 400
"""Of a score that names neither their number nor a protocol: at most, measured until decided."""
MAX_SPECS = 256
MAX_VIEWS = 4096
"""Views of one history; with the longest horizon their answer still fits a message."""
MAX_EXTRAS = 64
MAX_LOGGED = 256
"""Predicted steps of jobs, whose anchors hold so many future frames."""
MAX_HORIZON = 1024
"""Predicted steps of interactive requests."""
RELEASED_FUTURE_FRAMES = 9
"""Future frames of the windows that the paper's released code draws anchors from, at least."""


def released_future_frames(horizon: int) -> int:
    """Future frames of the released code's windows, of which ``horizon`` are used."""
    return max(RELEASED_FUTURE_FRAMES, horizon + 1)


class Request(Frozen):
    """Base of the values of requests: lists become tuples, whole numbers floats where they are."""

    def __post_init__(self) -> None:
        normalise(self)


class CheckpointRef(Request, Wire[receipt_pb2.CheckpointRef]):
    name: str
    weights: str = ""
    digest: str = ""
    model_digest: str = ""

    def check_rules(self) -> None:
        """There is a name, and no part is longer than 1024 characters."""
        if not self.name:
            raise ArgumentError("name", "name the checkpoint's folder")
        parts = (self.name, self.weights, self.digest, self.model_digest)
        if max(map(len, parts)) > MAX_NAME:
            raise ArgumentError("", f"a part is longer than {MAX_NAME} characters")

    @classmethod
    def of(cls, value: str | CheckpointRef) -> CheckpointRef:
        """A ref from a ref or from a bare name."""
        return cls(value) if isinstance(value, str) else value


MAX_EPISODES_TEXT = 2**16


class DatasetAnchors(Request, Wire[anchor_service_pb2.DatasetAnchors]):
    dataset: str = bounded(least=1, most=MAX_NAME)
    task: str = bounded(least=1, most=MAX_NAME)
    count: int | None = bounded(None, ge=1, le=MAX_ANCHORS)
    seed: int = bounded(9101, ge=0, le=2**63 - 1)
    frameskip: int | None = bounded(None, ge=1, le=UINT32)
    one_per_episode: bool | None = None
    window_future_frames: int | None = bounded(None, ge=1, le=MAX_LOGGED)
    sample: AnchorSample = AnchorSample.SERVER_DEFAULT
    episodes: str = bounded("", most=MAX_EPISODES_TEXT)

    def resolved_count(self) -> DatasetAnchors:
        """The same anchors, with the paper's number of them where it is open."""
        return replace(self, count=self.count or PAPER_ANCHORS)

    def resolved(self, count: int = PAPER_ANCHORS, one_per_episode: bool = False) -> AnchorSource:
        """The same anchors, with what the request left open decided, but for the windows."""
        chosen = one_per_episode if self.one_per_episode is None else self.one_per_episode
        decided = {"count": self.count or count, "one_per_episode": chosen}
        return AnchorSource(**{**vars(self), **decided})


class AnchorSource(DatasetAnchors):
    """Anchors of a dataset with nothing left open but the preset's frameskip and the windows."""

    count: int = bounded(PAPER_ANCHORS, ge=1, le=MAX_ANCHORS)
    one_per_episode: bool = False

    @property
    def by_episode(self) -> bool:
        """Whether an episode gives one anchor at most."""
        return self.one_per_episode or self.sample is AnchorSample.EPISODES

    def with_windows(
        self, reading: Reading, horizon: int, sample: AnchorSample = AnchorSample.WINDOWS
    ) -> AnchorSource:
        """The same anchors with the windows decided, for ``horizon`` future frames.

        They are drawn as ``sample`` says where this is open.

        Raises ArgumentError: The windows asked for have fewer future frames; names the field.
        """
        frames = self.window_future_frames
        if frames is None:
            released = reading is Reading.RELEASED
            frames = released_future_frames(horizon) if released else horizon
        if frames < horizon:
            raise ArgumentError(
                "window_future_frames", f"found {frames}, but {horizon} future frames are used"
            )
        return replace(self, window_future_frames=frames, sample=self.sample or sample)


class CemBudget(Request, Wire[diagnostic_service_pb2.CemBudget]):
    candidates: int = bounded(64, ge=1, le=UINT32)
    elites: int = bounded(8, ge=2, le=UINT32)
    iterations: int = bounded(8, ge=1, le=1000)
    horizon: int = bounded(5, ge=1, le=MAX_HORIZON)

    def check_rules(self) -> None:
        """A choice needs a candidate more than it takes."""
        if self.elites >= self.candidates:
            raise ArgumentError(
                "elites",
                f"found {self.elites} of {self.candidates} candidates; a standard deviation needs "
                "2 elites, and a choice at least one candidate more",
            )


class PerturbationSet(Request, Wire[perturbation_pb2.PerturbationSet]):
    specs: tuple[Spec, ...] = bounded(least=1, most=MAX_SPECS)
    draws: int = bounded(1, ge=1, le=MAX_VIEWS)
    seed: int = seed_field()
    anchor: int = seed_field()
    apply_to: ApplyTo = ApplyTo.HISTORY

    def check_rules(self) -> None:
        """Views are bounded by the product."""
        check_views(self.draws, len(self.specs), MAX_VIEWS)


def check_views(draws: int, specs: int, most: int) -> None:
    """Raises ArgumentError, which names ``draws``, when views are too many."""
    if draws * specs > most:
        raise ArgumentError("draws", f"found {draws} of {specs} specs, wanted {most} views at most")


class ScoreProtocol(Request, Wire[scoring_service_pb2.ScoreProtocol]):
    draws: int = bounded(5, ge=1, le=1000)
    seed: int = seed_field()
    horizon: int = bounded(8, ge=1, le=MAX_LOGGED)
    quantile: float = bounded(0.90, ge=0, le=1)
    margin: float = bounded(0.10, ge=0)
    weights: tuple[float, ...] = bounded((), most=MAX_HORIZON)
    extra_horizons: tuple[int, ...] = bounded((), ge=1, le=MAX_LOGGED, most=MAX_EXTRAS)
    extra_quantiles: tuple[float, ...] = bounded((), ge=0, le=1, most=MAX_EXTRAS)
    reading: Reading = reading_field()
    partner_past: PartnerPast = follows(paper=PartnerPast.OWN, released=PartnerPast.ANCHOR)
    neighbourhood: float = bounded(0.35, gt=0, le=1, paper=0.35)

    def check_rules(self) -> None:
        """Extra horizons are not above the main one, and extras not too many."""
        extras = len(self.extra_horizons) + len(self.extra_quantiles)
        if extras > MAX_EXTRAS:
            raise ArgumentError(
                "extra_horizons", f"found {extras} extra summaries, wanted at most {MAX_EXTRAS}"
            )
        for horizon in self.extra_horizons:
            if horizon > self.horizon:
                wanted = f"wanted at most the horizon, {self.horizon}"
                raise ArgumentError("extra_horizons", f"found {horizon}, {wanted}")


class Thresholds(Request, Wire[scoring_service_pb2.Thresholds]):
    ir: float = bounded(0.30, gt=0)
    sr: float = bounded(0.95, gt=0, le=1)
    source_digest: str = bounded("", most=64, paper="")
    family: str = bounded("", most=128, paper="")

    def check_rules(self) -> None:
        """A digest is whole or absent."""
        if self.source_digest and not re.fullmatch("[0-9a-f]{64}", self.source_digest):
            found = f"found {self.source_digest!r}"
            raise ArgumentError("source_digest", f"{found}, wanted 64 hexadecimal digits, or none")


class UploadHeader(Request, Wire[anchor_service_pb2.UploadHeader]):
    request_id: str = bounded(most=MAX_REQUEST_ID)
    anchors: int = bounded(ge=1, le=UINT32)
    history: int = bounded(ge=1, le=MAX_LOGGED)
    horizon: int = bounded(ge=1, le=MAX_LOGGED)
    description: str = bounded("", most=1024)
    expected_digest: str = ""


class CreateRequest(Request, Wire[anchor_service_pb2.CreateAnchorSetRequest]):
    source: DatasetAnchors
    history: int = bounded(ge=1, le=MAX_LOGGED)
    horizon: int = bounded(ge=1, le=MAX_LOGGED)
    description: str = bounded("", most=1024)
    request_id: str = bounded("", most=MAX_REQUEST_ID)
    reading: Reading = Reading.SERVER_DEFAULT
