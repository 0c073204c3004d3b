"""Serves computations that come often by a captured graph, which never answers unchecked.

A planner asks for the same shape thousands of times. Once a key has come often enough, its
computation is captured as a graph of the device. The fast path serves after its first
answers have agreed with the eager ones. From then on every answer is looked at, and a part of each
computed eagerly too; an answer that is wrong is computed eagerly instead, and ends the path.
Whatever goes wrong, the caller gets the eager answer.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import structlog
import torch
from torch import Tensor

from acpc_server.engine.accelerator import to_host
from acpc_server.engine.answers import accelerator_failed
from acpc_server.engine.graphs import Compute, capture
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.engine")
# A fast path holds the memory of a graph.
MAX_PATHS = 4
# Another key may have the place of a path that was not asked for in so many computations. More keys
# than places that all keep coming would else be made, and dropped, for ever.
STALE = 4096
# Keys whose calls are counted.
MAX_KEYS = 64
# First answers of a path, all compared with the eager ones and none of them served.
TRIALS = 2
# An answer so many times larger than any eager one of its path is compared, too.
LARGER = 4.0
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
NOT_FINITE, IMPLAUSIBLE, DIFFERS, RAISED = "not_finite", "implausible", "differs", "raised"


@dataclass(frozen=True)
class Computation:
    """What a fast path stands in for.

    Attributes:
        primitive: Its kind, a label of metrics.
        key: Equal for computations with equal answers; shapes of inputs need not be in it.
        eager: Computes the answer.
        tolerance: Largest difference from the eager answer, relative to its largest number.
        part: Given a place in [0, 1), an answer and the inputs, a small part of the answer there
            as it is, and as it must be by the eager computation.
    """

    primitive: str
    key: Hashable
    eager: Compute
    tolerance: float
    part: Callable[..., tuple[Tensor, Tensor]]


@dataclass
class _Path:
    """What is known about one key."""

    primitive: str  # no more of the computation, which would keep an unloaded model
    key: Hashable
    seen: int = 0
    tried: bool = False
    used: int = 0  # the number of the latest computation that asked for it
    fast: Compute | None = None
    answers: int = 0  # those of the fast path
    largest: float = math.inf  # of the eager answers it was compared with

    @property
    def serves(self) -> bool:
        return self.fast is not None and self.answers >= TRIALS


class FastPaths:
    """Computes, keys that come often by a fast path. For the device's thread only.

    Args:
        after: Calls of one key before a fast path is made for it; 0: never.
    """

    def __init__(self, device: torch.device, metrics: Metrics, *, after: int) -> None:
        self._device = device
        self._metrics = metrics
        self._after = after
        self._paths: OrderedDict[Hashable, _Path] = OrderedDict()
        self._ended: set[Hashable] = set()  # few: each has served
        self._computations = 0

    @property
    def wanted(self) -> bool:
        """Whether any are made."""
        return self._after > 0

    def compute(self, what: Computation, *inputs: Tensor) -> Tensor:
        """The answer to ``inputs``, on the CPU, as ``what.eager(*inputs)`` gives it.

        Raises whatever the eager computation raises.
        """
        key = (what.primitive, what.key, *((tuple(x.shape), x.dtype) for x in inputs))
        if not self._after or key in self._ended:
            return to_host(what.eager(*inputs))
        path = self._remember(what.primitive, key)
        # A path is made for one layout of its inputs.
        inputs = tuple(x.contiguous() for x in inputs)
        if path.fast is not None:
            return self._watched(what, path, path.fast, inputs)
        if not path.tried and path.seen >= self._after and self._has_place():
            path.tried = True
            self._make(what, path, tuple(x.detach().clone() for x in inputs))
        return to_host(what.eager(*inputs))

    def _watched(
        self, what: Computation, path: _Path, compute: Compute, inputs: tuple[Tensor, ...]
    ) -> Tensor:
        """The answer of the fast path where it can be believed, else the eager one."""
        try:
            answer = compute(*inputs)
            fast = to_host(answer)
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError) or accelerator_failed(error):
                raise
            self._end(path, RAISED, str(error))
            return to_host(what.eager(*inputs))
        largest = float(fast.abs().max())
        doubt = _doubt(largest, path.largest)
        served = path.serves
        if served and not doubt:
            place = path.answers * GOLDEN % 1.0  # over time as even as can be
            if _difference(*what.part(place, answer, *inputs)) <= what.tolerance:
                path.answers += 1
                return fast
        eager = to_host(what.eager(*inputs))
        scale = float(eager.abs().max())
        if not scale < math.inf:
            return eager  # nothing can be said of the path
        difference = _difference(fast, eager)
        if not difference <= what.tolerance:  # NaN does not pass
            self._end(path, doubt or DIFFERS, difference)
            return eager
        path.largest = max(path.largest, scale) if path.answers else scale
        path.answers += 1
        if path.serves and not served:
            self._metrics.fast_paths.labels(what.primitive).inc()
            log.info("fast_path_serves", primitive=what.primitive, difference=difference)
        return fast if served else eager

    def _remember(self, primitive: str, key: Hashable) -> _Path:
        path = self._paths.setdefault(key, _Path(primitive, key))
        self._paths.move_to_end(key)
        path.seen += 1
        self._computations += 1
        path.used = self._computations
        if len(self._paths) > MAX_KEYS:
            one = next(x for x in self._paths.values() if x.fast is None)
            del self._paths[one.key]
        return path

    def _has_place(self) -> bool:
        """Whether a path may be made now; one that is not asked for any more makes room."""
        made = [path for path in self._paths.values() if path.fast is not None]
        if len(made) < MAX_PATHS:
            return True
        if self._computations - made[0].used < STALE:
            return False
        self._forget(made[0])
        return True

    def _forget(self, path: _Path) -> None:
        self._metrics.fast_paths.labels(path.primitive).dec(int(path.serves))
        del self._paths[path.key]

    def _end(self, path: _Path, reason: str, found: float | str) -> None:
        primitive = path.primitive
        self._metrics.fast_paths_ended.labels(primitive, reason).inc()
        answers = path.answers
        log.warning(
            "fast_path_ended", primitive=primitive, reason=reason, found=found, answers=answers
        )
        self._ended.add(path.key)
        self._forget(path)

    def _make(self, what: Computation, path: _Path, inputs: tuple[Tensor, ...]) -> None:
        try:
            path.fast = capture(what.eager, inputs)
        except RuntimeError as error:
            log.warning("graph_capture_failed", primitive=what.primitive, error=str(error))


def _difference(found: Tensor, wanted: Tensor) -> float:
    """The largest difference from ``wanted``, relative to its largest number."""
    largest = torch.stack([(found - wanted).abs().max(), wanted.abs().max().clamp(min=1e-30)])
    difference, scale = to_host(largest).tolist()  # both at once: a device is waited for
    return float(difference / scale)


def _doubt(largest: float, before: float) -> str:
    """Why an answer with numbers up to ``largest`` cannot be believed as it is, or ''."""
    if not largest < math.inf:  # NaN is not
        return NOT_FINITE
    return IMPLAUSIBLE if largest > LARGER * before else ""
