"""Serves pools that come often by a captured graph, which never answers unchecked.

A planner sends the same shape thousands of times. Once a key has come often enough, its computation
is captured as a graph of the device, which serves after its first answers have agreed with the
eager ones. From then on a part of every answer is computed eagerly too; a wrong answer is computed
eagerly instead, and ends the path. Whatever goes wrong, the caller gets the eager answer.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

import structlog
import torch
from acpc.contract import NumericMode
from torch import Tensor

from acpc_server.engine.accelerator import Compute, capture, to_host
from acpc_server.engine.answers import accelerator_failed
from acpc_server.models import FrozenWorldModel, TakesProprio, rollout_pool
from acpc_server.observe import Metrics

log = structlog.get_logger("acpc.engine")
# A fast path holds the memory of a graph.
MAX_PATHS = 4
# Another key may take the place of a path that was idle for so many computations. More keys than
# places that all keep coming would otherwise be made and dropped for ever.
STALE = 4096
# Keys whose calls are counted.
MAX_KEYS = 64
# First answers of a path, all compared with the eager ones and none of them served.
TRIALS = 2
# An answer so many times larger than any eager one of its path is compared, too.
LARGER = 4.0
# Of the largest number of an answer. In bfloat16 either answer is off by about 1e-2.
TOLERANCE, REDUCED_TOLERANCE = 1e-5, 5e-2
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
NOT_FINITE, IMPLAUSIBLE, DIFFERS, RAISED = "not_finite", "implausible", "differs", "raised"


@dataclass(frozen=True)
class Computation:
    """A computation that a fast path may replace.

    Attributes:
        primitive: Its kind, a label of metrics.
        key: Equal for computations with equal answers; shapes of inputs need not be in it.
        eager: Computes the answer.
        tolerance: Largest difference from the eager answer, relative to its largest number.
        part: Takes a place in [0, 1), an answer and the inputs; returns a small part of the answer
            there, and the same part computed eagerly.
    """

    primitive: str
    key: Hashable
    eager: Compute
    tolerance: float
    part: Callable[..., tuple[Tensor, Tensor]]


@dataclass
class _Path:
    """State of one key."""

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
    """Computes eagerly, or by a fast path after ``after`` calls of a key (0: never).

    For the device's thread only.
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
        """Return whether any are made."""
        return self._after > 0

    def compute(self, what: Computation, *inputs: Tensor) -> Tensor:
        """Return ``what.eager(*inputs)`` on the CPU; raises what that raises."""
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
        """Return the answer of the fast path where it passes the checks, else the eager one."""
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
            return eager  # the path cannot be judged
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
        """Return whether a path may be made now, after dropping one that is stale."""
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
    """Largest difference from ``wanted``, relative to its largest number."""
    largest = torch.stack([(found - wanted).abs().max(), wanted.abs().max().clamp(min=1e-30)])
    difference, scale = to_host(largest).tolist()  # both at once: a device is waited for
    return float(difference / scale)


def _doubt(largest: float, before: float) -> str:
    """Return why an answer with numbers up to ``largest`` must be compared, or ''."""
    if not largest < math.inf:  # NaN is not
        return NOT_FINITE
    return IMPLAUSIBLE if largest > LARGER * before else ""


def pool_computation(model: FrozenWorldModel, mode: NumericMode) -> Computation | None:
    """Return ``rollout_pool`` of a model; None where a fast path would gain nothing."""
    if mode is NumericMode.FP64:  # what seldom comes often
        return None
    reduced = mode is NumericMode.BF16
    return Computation(
        "pool",
        (model.card.digest, mode),
        partial(rollout_pool, model),
        REDUCED_TOLERANCE if reduced else TOLERANCE,
        partial(_one_rollout, model),
    )


def _one_rollout(
    model: FrozenWorldModel,
    place: float,
    answer: Tensor,
    histories: Tensor,
    past: Tensor,
    pools: Tensor,
) -> tuple[Tensor, Tensor]:
    """One history under one candidate, (horizon, dim): as answered, and predicted again.

    Predicts every step from the answered steps before it, all in one pass or a few.
    """
    v, j, horizon, _ = answer.shape
    view, candidate = divmod(int(place * v * j), j)
    row = view * len(pools) // v
    history, found = histories[view], answer[view, candidate]
    before, future = past.expand(len(pools), -1, -1)[row], pools[row, candidate]
    if isinstance(model, TakesProprio):  # whose predictions hold more than a latent says
        again = rollout_pool(model, history[None], before, future[None, None])
        return found, again[0, 0]
    latents, blocks = torch.cat([history, found[:-1]]), torch.cat([before, future])
    actions = model.embed_actions(blocks[None])[0]
    ends: dict[int, list[int]] = {}  # of windows, by their length
    for end in range(len(history), len(history) + horizon):
        ends.setdefault(min(end, model.card.history), []).append(end)
    predicted = [
        model.predict_next(
            *(torch.stack([x[end - t : end] for end in of]) for x in (latents, actions))
        )
        for t, of in ends.items()
    ]
    return found, torch.cat(predicted)
