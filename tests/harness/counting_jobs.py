"""A kind of job whose steps only take time, and a process that runs such jobs."""

import hashlib
import time
from dataclasses import dataclass
from functools import partial

from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.jobs import JobSpec, Json, Step
from acpc_server.scheduling import RequestContext

CHUNK_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class CountingPlan(JobSpec):
    """``steps`` steps of ``seconds`` each; the one numbered ``bad`` is refused."""

    checkpoint: str
    steps: int
    seconds: float = 0.0
    bad: int = -1


def counting_plan(
    steps: int, seconds: float = 0.0, *, bad: int = -1, checkpoint: str = "model"
) -> CountingPlan:
    return CountingPlan(checkpoint=checkpoint, steps=steps, seconds=seconds, bad=bad)


class Counting:
    """The kind.

    Attributes:
        stamped: What its data looks like at the moment.
        held_at: Steps from this one on do not end, until it is set to None.
        fault: Raised by the third step, when there is one.
        run_for: Callers for whom it has run.
    """

    name = "counting"
    spec_type: type[CountingPlan] = CountingPlan
    stamped = "fresh"
    held_at: int | None = None
    fault: Exception | None = None

    def __init__(self) -> None:
        self.run_for: set[str] = set()

    def stamp(self, plan: CountingPlan) -> str:
        return self.stamped

    def labels(self, plan: CountingPlan) -> dict[str, str]:
        return {"checkpoint": plan.checkpoint}

    def count_steps(self, plan: CountingPlan) -> int:
        return plan.steps

    def run(self, plan: CountingPlan, stamp: str, step: Step, context: RequestContext) -> Json:
        self.run_for.add(context.caller)
        if stamp != self.stamped:
            raise FailedPrecondition("the data changed", reason="CHANGED")
        seen = [
            step("counting", partial(self._count, plan, index, context))
            for index in range(plan.steps)
        ]
        return {"counted": hashlib.sha256(repr(seen).encode()).hexdigest()}

    def _count(self, plan: CountingPlan, index: int, context: RequestContext) -> Json:
        if index == plan.bad:
            raise InvalidArgument("bad", f"step {index} is refused")
        if self.fault is not None and index == 2:
            raise self.fault
        until = time.monotonic() + plan.seconds
        # As the engine does, look at the context at every chunk.
        while time.monotonic() < until or (self.held_at is not None and index >= self.held_at):
            context.check()
            time.sleep(CHUNK_SECONDS)
        return {"index": index, "checkpoint": plan.checkpoint}
