"""Pools of candidate action sequences: the caller's own, or sampled by the server."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from acpc.contract.errors import ArgumentError
from acpc.contract.fields import UINT32, bounded, seed_field
from acpc.contract.messages import Wire
from acpc.contract.moments import PlanStart
from acpc.contract.requests import Request
from acpc.contract.tensor import Array, floats
from acpc.v1 import diagnostic_service_pb2 as pb

MAX_CANDIDATES = 2**20


@dataclass(frozen=True, eq=False, kw_only=True)
class CandidatePool(Request):
    """Candidates, and what is known of each beside its predictions.

    Attributes:
        candidates: Candidate action sequences, float32 (candidates, H, block width).
        offsets: Added to the cost of each under every view, float32 (candidates); None: nothing.
        infeasible: Those, from 0, that break a constraint on their actions, at most 1,048,576: of
            infinite cost under every view.
    """

    candidates: Array = floats("candidates, H, block width")
    offsets: Array | None = floats("candidates", None)
    infeasible: tuple[int, ...] = bounded((), ge=0, le=UINT32, most=MAX_CANDIDATES)

    @property
    def arrays(self) -> list[tuple[str, Array]]:
        """What is known beside the candidates, for a receipt."""
        out = np.unique(np.array(self.infeasible, np.int64))
        found = {"offsets": self.offsets, "infeasible": out if len(out) else None}
        return [(name, array) for name, array in found.items() if array is not None]

    def check_rules(self) -> None:
        """Each candidate has an offset, or none has."""
        if isinstance(self, PlanStart):
            PlanStart.check_rules(self)
        if self.offsets is not None and self.offsets.shape != self.candidates.shape[:1]:
            found, wanted = list(self.offsets.shape), list(self.candidates.shape[:1])
            raise ArgumentError("offsets.shape", f"found {found}, wanted {wanted}")


@dataclass(frozen=True, eq=False, kw_only=True)
class PoolRequest(CandidatePool, PlanStart, Wire[pb.CertifyPoolRequest]):
    """Can this visual change alter the planner's choice among these candidates?"""


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnPool(CandidatePool, Wire[pb.PlanPool]):
    """A pool of the caller's own; its iteration is echoed.

    Attributes:
        iteration: Number of the pool in its session, as the caller counts.
    """

    iteration: int = bounded(0, ge=0, le=UINT32)


@dataclass(frozen=True, eq=False, kw_only=True)
class Proposal(Request, Wire[pb.GaussianProposal]):
    """Has the server sample a pool: mean + std times standard normals; candidate 0 is the mean.

    Attributes:
        mean: float32 (H, block width).
        std: As ``mean``, not negative.
        candidates: Size of the pool.
        seed: Of the normals, which depend on it alone.
    """

    mean: Array = floats("H, block width")
    std: Array = floats("H, block width")
    candidates: int = bounded(ge=0, le=UINT32)
    seed: int = seed_field()

    def check_rules(self) -> None:
        """Deviations are not negative; that they have the mean's shape, the server checks."""
        if (self.std < 0).any():
            raise ArgumentError("std.data", "holds a negative standard deviation")
