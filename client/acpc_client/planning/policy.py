# Generated from planning/async_policy.py by client/unasync.py; do not edit.
"""The policy that asks through the blocking client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from acpc_client.errors import AcpcError
from acpc_client.planning.rule import Command, Control, ControlStep, OpenSession, PolicyRule, Pools
from acpc_client.sync import PlanSession

Frame = TypeVar("Frame")


class Policy(PolicyRule):
    """Decides the control steps of a planner that asks through the blocking client.

    In a ``with`` block consecutive steps share one stream: the session moves on to the next
    frame if only frames, past blocks, goal or the caller's own views differ. Otherwise, as after
    REFINE, or when the stream has broken, a new stream is opened. Answers are the same either way,
    except for their request id.
    """

    def __enter__(self) -> Policy:
        """Begins an episode."""
        self.episode.lasts = True
        return self

    def __exit__(self, *_: object) -> None:
        self.episode.lasts = False
        kept, self.episode.session = self.episode.session, None
        if kept is not None:
            kept.close()

    def _enter(self, wanted: PlanSession, before: PlanSession | None) -> PlanSession:
        if self.episode.lasts:
            return wanted.enter_after(before)
        if before is not None:
            before.close()
        return wanted.__enter__()

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

        Raises ArgumentError: A pool that cannot be sent, or a session without an elite set to
        select.
        """
        steps = Control(self, pools).steps()
        frame: Frame
        session, self.episode.session = self.episode.session, None
        command: Command = next(steps)
        try:
            while True:
                answer = None
                try:
                    if isinstance(command, OpenSession):
                        if command.fresh:
                            frame = observe()
                        session = self._enter(look(frame, **command.options), session)
                    else:
                        assert session is not None  # noqa: S101 - a session is opened first
                        answer = session.certify(command.pool, timeout=command.timeout)
                except AcpcError as error:
                    command = steps.throw(error)
                else:
                    command = steps.send(answer)
        except StopIteration as ended:
            if self.episode.lasts:
                self.episode.session, session = session, None
            return self.count(ended.value)
        finally:
            if session is not None:
                session.close()
