"""What calls take besides arrays: plain frozen values with the contract's defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from acpc.v1 import (
    anchor_service_pb2,
    diagnostic_service_pb2,
    receipt_pb2,
    scoring_service_pb2,
)
from numpy.typing import NDArray

from acpc_client.errors import ArgumentError
from acpc_client.perturbations import Perturbation

Count = TypeVar("Count", int, int | None)


def unsigned(value: Count, name: str, bits: int = 32) -> Count:
    """``value`` itself, once it is known to fit an unsigned field of the contract.

    Raises:
        ArgumentError: It does not.
    """
    if value is not None and not 0 <= value < 2**bits:
        raise ArgumentError(name, f"found {value}, wanted an integer in [0, 2**{bits})")
    return value


@dataclass(frozen=True)
class CheckpointRef:
    """A checkpoint below the server's root.

    Attributes:
        name: Folder path relative to the root.
        weights: Weights file inside the folder; empty: the only one, or ``weights.pt``.
        digest: When set, the call fails unless the checkpoint has this digest.
    """

    name: str
    weights: str = ""
    digest: str = ""

    @classmethod
    def of(cls, value: str | CheckpointRef) -> CheckpointRef:
        """A ref from a ref or from a bare name."""
        return cls(value) if isinstance(value, str) else value

    @classmethod
    def from_message(cls, message: receipt_pb2.CheckpointRef) -> CheckpointRef:
        """Reads the wire form."""
        return cls(message.name, message.weights, message.digest)

    def to_message(self) -> receipt_pb2.CheckpointRef:
        """The wire form."""
        return receipt_pb2.CheckpointRef(name=self.name, weights=self.weights, digest=self.digest)


@dataclass(frozen=True, eq=False)
class Pair:
    """One question of ``compare_pairs``; the fields mean what they mean in ``compare_pair``."""

    history: NDArray[Any]
    action_blocks: NDArray[Any]
    perturbations: Perturbation | Sequence[Perturbation] = ()
    views: NDArray[Any] | None = None
    draws: int = 1
    seed: int = 0
    anchor: int = 0
    observed_future: NDArray[Any] | None = None
    weights: Sequence[float] = ()
    pair_id: str = ""


@dataclass(frozen=True)
class DatasetAnchors:
    """Anchors drawn from an HDF5 dataset below the server's dataset root.

    Attributes:
        dataset: File path relative to the root, for example ``"tworoom.h5"``.
        task: Name of a task preset, or of a task file below the dataset root.
        count: Anchors n; None: 100.
        seed: Seed of the anchor permutation; None: 9101.
        frameskip: Environment steps between kept frames; None: the preset's.
        one_per_episode: At most one window per episode; None: only in the studies that say so.
    """

    dataset: str
    task: str
    count: int | None = None
    seed: int | None = None
    frameskip: int | None = None
    one_per_episode: bool | None = None

    @classmethod
    def from_message(cls, message: anchor_service_pb2.DatasetAnchors) -> DatasetAnchors:
        """Reads the wire form."""
        given = {field.name: value for field, value in message.ListFields()}
        return cls(**{"dataset": "", "task": "", **given})

    def to_message(self) -> anchor_service_pb2.DatasetAnchors:
        """The wire form."""
        return anchor_service_pb2.DatasetAnchors(
            dataset=self.dataset,
            task=self.task,
            count=unsigned(self.count, "anchors.count"),
            seed=unsigned(self.seed, "anchors.seed", 64),
            frameskip=unsigned(self.frameskip, "anchors.frameskip"),
            one_per_episode=self.one_per_episode,
        )


@dataclass(frozen=True)
class CemBudget:
    """Size of a CEM run.

    Attributes:
        candidates: Pool size per iteration.
        elites: Size k of the elite set that the next proposal is fitted to.
        iterations: Iterations.
        horizon: Predicted steps H.
    """

    candidates: int
    elites: int
    iterations: int
    horizon: int

    def to_message(self) -> diagnostic_service_pb2.CemBudget:
        """The wire form."""
        return diagnostic_service_pb2.CemBudget(
            candidates=unsigned(self.candidates, "budget.candidates"),
            elites=unsigned(self.elites, "budget.elites"),
            iterations=unsigned(self.iterations, "budget.iterations"),
            horizon=unsigned(self.horizon, "budget.horizon"),
        )


@dataclass(frozen=True)
class ScoreProtocol:
    """How IR and SR are measured. None or empty means the paper's protocol.

    Attributes:
        draws: Draws M per anchor; None: 5.
        seed: Seed of the draws; None: 0.
        horizon: Predicted steps H; None: 8.
        quantile: Quantile q of IR across anchors; None: 0.90.
        margin: Margin delta of SR; None: 0.10.
        weights: Horizon weights; empty: 1/H.
        extra_horizons: More horizons to report beside the main one.
        extra_quantiles: More quantiles to report beside the main one.
    """

    draws: int | None = None
    seed: int | None = None
    horizon: int | None = None
    quantile: float | None = None
    margin: float | None = None
    weights: Sequence[float] = ()
    extra_horizons: Sequence[int] = ()
    extra_quantiles: Sequence[float] = ()

    def to_message(self) -> scoring_service_pb2.ScoreProtocol:
        """The wire form."""
        for horizon in self.extra_horizons:
            unsigned(horizon, "protocol.extra_horizons")
        return scoring_service_pb2.ScoreProtocol(
            draws=unsigned(self.draws, "protocol.draws"),
            seed=unsigned(self.seed, "protocol.seed", 64),
            horizon=unsigned(self.horizon, "protocol.horizon"),
            quantile=self.quantile,
            margin=self.margin,
            weights=self.weights,
            extra_horizons=self.extra_horizons,
            extra_quantiles=self.extra_quantiles,
        )


@dataclass(frozen=True)
class Thresholds:
    """Screen thresholds.

    Attributes:
        ir: Largest relative IR that passes; None: 0.30.
        sr: Smallest SR that passes; None: 0.95.
    """

    ir: float | None = None
    sr: float | None = None

    @classmethod
    def from_message(cls, message: scoring_service_pb2.Thresholds) -> Thresholds:
        """Reads the wire form."""
        return cls(
            message.ir if message.HasField("ir") else None,
            message.sr if message.HasField("sr") else None,
        )

    def to_message(self) -> scoring_service_pb2.Thresholds:
        """The wire form."""
        return scoring_service_pb2.Thresholds(ir=self.ir, sr=self.sr)
