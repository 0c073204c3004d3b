"""What the device does for one interactive request."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from acpc_server.engine.device import DeviceContext
from acpc_server.scheduling import RequestContext

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Work(Generic[T]):
    """What the device does for one interactive request, and how its answer is made.

    Attributes:
        kind: Of one kind may share a call.
        compute: Called in the device's thread with the payloads of all that share the call, of at
            most ``max_rows`` together, and a :class:`DeviceContext`; returns an answer, or an error
            of that request alone, for each. For work that is large it is called in the caller's
            thread, with the caller's context, and so queues one chunk after another.
        drawing: Work of drawing its views.
        finish: Makes the answer of what was computed.
    """

    primitive: str
    kind: tuple[Hashable, ...]
    payload: Any
    compute: Callable[[Sequence[Any], RequestContext], Sequence[Any]]
    rows: int
    max_rows: int
    drawing: float
    finish: Callable[[Any], T]

    def then(self, finish: Callable[[T], U]) -> Work[U]:
        """Return the same work with another answer, made of this one."""
        made = self.finish
        return replace(self, finish=lambda found: finish(made(found)))  # type: ignore[arg-type,return-value]

    def in_one_call(self, payloads: Sequence[Any]) -> Sequence[Any]:
        """Compute payloads of this kind at once, in the device's thread."""
        return self.compute(payloads, DeviceContext())
