"""Policies that ask through the blocking and through the asyncio client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from acpc_client.aio import AsyncPlanSession
from acpc_client.errors import AcpcError
from acpc_client.planning.control import Command, Control, Look, Pools
from acpc_client.planning.rule import ControlStep, PolicyRule
from acpc_client.sync import PlanSession

Frame = TypeVar("Frame")


class Policy(PolicyRule):
    """Decides the control steps of a planner that asks through the blocking client."""

    def step(
        self,
        observe: Callable[[], Frame],
        look: Callable[..., PlanSession],
        pools: Pools,
    ) -> ControlStep:
        """One control step.

        Nothing that the server does raises: without an answer in time the step brakes, says why and
        is counted. What raises is what ``observe``, ``look`` and ``pools`` raise themselves.

        Args:
            observe: The newest frames; called for every plan.
            look: Makes the session about a frame: ``client.plan(...)`` with the keywords that it is
                given, which take precedence over its own: time limits, those of ``closer``, and an
                elite count of 0 where SHRINK leaves too few for one.
            pools: Makes the pools of one plan; called for every plan.

        Raises:
            ArgumentError: A pool that cannot be sent, or a session without an elite set to select.
        """
        steps = Control(self, pools).steps()
        frame: Frame
        session: PlanSession | None = None
        command: Command = next(steps)
        try:
            while True:
                answer = None
                try:
                    if isinstance(command, Look):
                        if session is not None:
                            session.close()
                        if command.fresh:
                            frame = observe()
                        session = look(frame, **command.options).__enter__()
                    else:
                        assert session is not None  # noqa: S101 - a look comes first
                        answer = session.certify(command.pool, timeout=command.timeout)
                except AcpcError as error:
                    command = steps.throw(error)
                else:
                    command = steps.send(answer)
        except StopIteration as ended:
            return self.count(ended.value)
        finally:
            if session is not None:
                session.close()


class AsyncPolicy(PolicyRule):
    """See ``Policy``; for the asyncio client."""

    async def step(
        self,
        observe: Callable[[], Frame],
        look: Callable[..., AsyncPlanSession],
        pools: Pools,
    ) -> ControlStep:
        """See ``Policy.step``."""
        steps = Control(self, pools).steps()
        frame: Frame
        session: AsyncPlanSession | None = None
        command: Command = next(steps)
        try:
            while True:
                answer = None
                try:
                    if isinstance(command, Look):
                        if session is not None:
                            await session.close()
                        if command.fresh:
                            frame = observe()
                        session = await look(frame, **command.options).__aenter__()
                    else:
                        assert session is not None  # noqa: S101 - a look comes first
                        answer = await session.certify(command.pool, timeout=command.timeout)
                except AcpcError as error:
                    command = steps.throw(error)
                else:
                    command = steps.send(answer)
        except StopIteration as ended:
            return self.count(ended.value)
        finally:
            if session is not None:
                await session.close()
