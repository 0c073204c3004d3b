"""What a kind of durable job is to those that keep and run jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar

from acpc_server.jobs.plan import JobPlan
from acpc_server.scheduling import RequestContext

Json: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[str, Callable[[], Json]], Json]
"""``step(phase, work)``: does ``work`` and puts its answer on record, or, when a run before this
one has done so, gives the answer on record. ``phase`` tells people what is being done."""
Plan = TypeVar("Plan", bound=JobPlan)


class JobKind(Protocol[Plan]):
    """One kind of job."""

    @property
    def name(self) -> str:
        """Name on record; never changes."""
        ...

    @property
    def plan_type(self) -> type[Plan]:
        """A job as data: everything that can change a number of its result."""
        ...

    def stamp(self, plan: Plan) -> str:
        """Changes when the data the plan reads is replaced or written to."""
        ...

    def count_steps(self, plan: Plan) -> int:
        """How often :meth:`run` calls ``step``."""
        ...

    def run(self, plan: Plan, stamp: str, step: Step, context: RequestContext) -> Json:
        """The result of a job whose plan had ``stamp`` when it was accepted.

        The same plan takes the same steps in the same order, whatever the load and the host, and
        its result holds no time: a run that was interrupted ends with the bytes of one that was
        not. Between steps there is nothing that takes long.

        Raises:
            AcpcError: The job cannot be done.
        """
        ...
