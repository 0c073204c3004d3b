"""Describes a checkpoint job as data: everything that can change a number of its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from acpc.contract import (
    AnchorSource,
    CheckpointRef,
    EvidenceOptions,
    Perturbation,
    ScoreProtocol,
    Thresholds,
    UntilDecided,
    digested,
    resolved,
    to_plain,
)

from acpc_server.encoding import AnchorJobSpec, digest_json
from acpc_server.errors import below
from acpc_server.evidence import METHODS, SPENDING
from acpc_server.perturb import DRAW_FORMAT
from acpc_server.scoring.fit import FIT_PARAMETERS

Role = Literal["checkpoint", "reference"]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ScoreSpec(AnchorJobSpec):
    """One ScoreCheckpoint job."""

    reference: CheckpointRef | None
    shift: Perturbation = field(metadata={"json": "perturbation"})
    protocol: ScoreProtocol = field(default_factory=ScoreProtocol)
    thresholds: Thresholds = field(default_factory=Thresholds)
    evidence: EvidenceOptions = field(default_factory=EvidenceOptions)
    until_decided: UntilDecided | None = None

    def __post_init__(self) -> None:
        """Decide what the request left to the reading."""
        protocol = resolved(self.protocol)
        object.__setattr__(self, "protocol", protocol)
        if isinstance(self.anchors, AnchorSource):
            with below("dataset"):
                windows = self.anchors.with_windows(protocol.reading, protocol.horizon)
            object.__setattr__(self, "anchors", windows)

    def first(self, count: int) -> ScoreSpec:
        """Return the job of the first ``count`` anchors alone."""
        return replace(self, anchors=replace(self.anchors, count=count), until_decided=None)

    def looks(self) -> list[int]:
        """Return the anchors at each look of a job that measures until it is decided."""
        if self.until_decided is None:
            return []
        return self.until_decided.sizes(self.anchors.count, self.evidence.confidence)

    def roles(self) -> list[Role]:
        """Return the checkpoints to measure; one that is its own reference is measured once."""
        if self.reference is None or self.reference.digest == self.checkpoint.digest:
            return ["checkpoint"]
        return ["checkpoint", "reference"]

    def both(self, of: Mapping[Role, T]) -> tuple[T, T | None]:
        """Return what the checkpoint and its reference have; the same where they are one."""
        own = of["checkpoint"]
        return own, None if self.reference is None else of.get("reference", own)

    def named(self, role: Role) -> CheckpointRef:
        """Return the checkpoint that plays ``role``."""
        if role == "reference" and self.reference is not None:
            return self.reference
        return self.checkpoint

    def horizons(self) -> list[int]:
        """Return the horizons of raw IR, each once; the main one last unless asked for."""
        return list(dict.fromkeys((*self.protocol.extra_horizons, self.protocol.horizon)))

    def parameters(self) -> dict[str, object]:
        """Return the protocol, how windows are drawn, thresholds, how sure it is made, the fit."""
        return {
            "protocol": to_plain(self.protocol),
            "thresholds": digested(self.thresholds),
            "evidence": {**to_plain(self.evidence), "method": METHODS[self.evidence.population]},
            "fit": FIT_PARAMETERS,
            **self._stopping(),
            **self.drawn(),
        }

    def digested(self) -> dict[str, object]:
        """Return the parameters without the windows, the fit and what has its default."""
        usual = EvidenceOptions(population=self.evidence.population)
        asked = {} if self.evidence == usual else {"evidence": to_plain(self.evidence)}
        return {
            "protocol": digested(self.protocol),
            "thresholds": digested(self.thresholds),
            **asked,
            **self._stopping(),
        }

    def _stopping(self) -> dict[str, object]:
        if self.until_decided is None:
            return {}
        limit = {"limit": self.anchors.count, "spending": SPENDING}
        return {"until_decided": {**to_plain(self.until_decided), **limit}}

    def perturbation_digest(self) -> str:
        """Return the sha256 over the shift, the draw count and the seed."""
        return digest_json(
            {
                "draw_format": DRAW_FORMAT,
                "specs": [self.shift.digest],
                "draws": self.protocol.draws,
                "seed": self.protocol.seed,
                **self.given(),
            }
        )
