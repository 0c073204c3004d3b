"""The rule of a policy, and the record of what it decided."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import numpy as np
from acpc.contract import Array, PoolCertificate, Record
from numpy.typing import NDArray

from acpc_client.calls import CertifyOptions
from acpc_client.errors import AcpcError, ArgumentError

Candidates = NDArray[np.float32]


class Decision(StrEnum):
    """What a control step ended with.

    Attributes:
        ACCEPT: The choice was certified at once.
        SHRINK: Certified among the candidates that act differently from the winner: the change may
            alter which of the others wins, and not what is done.
        REFINE: Certified by a closer look at the same pool.
        EARLIER: The choice of an earlier pool of the same plan, which was certified.
        REPLAN: A choice of a later plan of this step, from a new frame.
        BRAKE: Nothing was certified within the budget, or the server did not answer.
    """

    ACCEPT = "accept"
    SHRINK = "shrink"
    REFINE = "refine"
    EARLIER = "earlier"
    REPLAN = "replan"
    BRAKE = "brake"


@dataclass(frozen=True, repr=False, eq=False)
class Attempt(Record):
    """One judgement of a choice.

    Attributes:
        remedy: What led to it: ACCEPT for the first, or the remedy that was tried.
        certified: Whether the choice may be acted on.
        margin: The smallest margin over views, in units of the clean gap: 1 where nothing moves, 0
            or less without a proof. None where there is no finite gap to measure by.
        unchanged: Fraction of the drawn views that choose the same winner, proven or not.
        candidates: Size of the pool.
    """

    remedy: Decision
    certified: bool
    margin: float | None
    unchanged: float
    candidates: int


@dataclass(frozen=True, repr=False, eq=False)
class ControlStep(Record):
    """What a policy decided at one control step, and what that took.

    Attributes:
        decision: How the step ended; that of the attempt that was certified.
        plan: The certified winner, float32 (H, block width); None: brake.
        pool: The pool it won, float32 (candidates, H, block width); of a step that brakes the last
            one that was answered, None where none was.
        certificate: The server's answer to that pool.
        attempts: Every judgement, in order.
        pools: Pools that the server was asked about.
        seconds: From the call to the decision.
        error: Why the server gave no answer; the choice may still be an EARLIER one.
    """

    decision: Decision
    plan: Candidates | None
    pool: Candidates | None
    certificate: PoolCertificate | None
    attempts: tuple[Attempt, ...]
    pools: int
    seconds: float
    error: AcpcError | None


_REMEDIES = {Decision.SHRINK, Decision.REFINE, Decision.EARLIER, Decision.REPLAN}


@dataclass
class Episode:
    """What a ``with`` block around control steps keeps from one to the next.

    Attributes:
        lasts: Whether one is under way.
        session: The one to move to the next frame.
    """

    lasts: bool = False
    session: Any = None


@dataclass(frozen=True)
class PolicyRule:
    """The rule of a policy, and what it has decided so far.

    A choice is certified when every drawn view leaves it unchanged by proof. In a session with a
    goal of coverage it is the statement with confidence that must hold instead, which speaks of
    views that were not drawn.

    A denied choice goes through the remedies in their order, each at most once a plan, until one is
    certified, the attempts or the milliseconds are spent, or none is left; then the step brakes.
    REPLAN begins again with a new frame.

    Attributes:
        remedies: What to try, in this order. None: a denied choice brakes.
        select: What must not change: the winner of a plan's last pool (``"top1"``), or the elite
            set of every pool (``"elite"``), by which CEM moves; SHRINK and EARLIER are for winners.
        budget_ms: Milliseconds of one control step, on the client's clock.
        attempts: Judgements of one control step, the first among them.
        acted: What a candidate does before the next control step, (candidates, ...) of a pool;
            the first block.
        same_action: SHRINK takes a candidate for the winner's equal when no entry of ``acted``
            differs by more; in its units.
        closer: What REFINE adds to the options of ``look``: a goal of coverage, with its draws.
        clock: Seconds, monotonic.
        decided: Control steps by decision.
        failed: Control steps without an answer, by the code of the error.
        episode: The stream that is kept, in a ``with`` block.

    Raises:
        ArgumentError: A number or a remedy that can never work.
    """

    remedies: tuple[Decision, ...] = ()
    select: Literal["top1", "elite"] = "top1"
    budget_ms: float = 200.0
    attempts: int = 4
    acted: Callable[[Candidates], Array] = field(default=lambda pool: pool[:, 0], repr=False)
    same_action: float = 0.0
    closer: CertifyOptions | None = None
    clock: Callable[[], float] = field(default=time.perf_counter, repr=False)
    decided: Counter[Decision] = field(default_factory=Counter, init=False)
    failed: Counter[str] = field(default_factory=Counter, init=False)
    episode: Episode = field(default_factory=Episode, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, least in (("budget_ms", 0.0), ("attempts", 0)):
            if not getattr(self, name) > least:
                raise ArgumentError(name, f"found {getattr(self, name)}, wanted more than {least}")
        if not self.same_action >= 0.0:
            raise ArgumentError("same_action", f"found {self.same_action}, wanted 0 or more")
        for remedy in self.remedies:
            if remedy not in _REMEDIES:
                raise ArgumentError("remedies", f"{remedy} is no remedy")
        if Decision.REFINE in self.remedies and not self.closer:
            raise ArgumentError("closer", "REFINE needs the options of the closer look")
        if self.select == "elite" and {Decision.SHRINK, Decision.EARLIER} & set(self.remedies):
            raise ArgumentError("remedies", "SHRINK and EARLIER are for select='top1'")

    def count(self, step: ControlStep) -> ControlStep:
        """Takes note of a control step, and returns it."""
        self.decided[step.decision] += 1
        if step.error is not None:
            self.failed[step.error.code] += 1
        return step
