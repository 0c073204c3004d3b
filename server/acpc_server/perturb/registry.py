"""The table of perturbations, which distributions extend by entry points.

An entry point of the group ``acpc.perturbations`` has the perturbation's name and names a
``Perturbation``; a program that embeds the server may call ``register``. A plug-in is imported when
a request first names it.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from typing import Any, NamedTuple

import torch
from acpc.contract import Composition, Registered, VisualChange
from jaxtyping import Float
from pydantic import ValidationError
from torch import Tensor

from acpc_server.errors import FailedPrecondition, InvalidArgument, below
from acpc_server.numerics import IMAGENET_MEAN, IMAGENET_STD, filled
from acpc_server.perturb.draws import Draws

ENTRY_POINT_GROUP = "acpc.perturbations"
# Work that a CPU does in one go, 7 ms; see :class:`Cost`.
PIECE_WORK = 3.5e6
COPIES = 11
"""Float32 frames of a view held at a time by the kind that holds most, a blur."""
MAX_VIEW_BYTES = 2**30
"""What drawing one view may hold, 1 GiB; three frames of 224 pixels take 15 MiB."""

Frames = Float[Tensor, "n 3 h w"]
Apply = Callable[[Tensor, Any, Draws], Tensor]


class Cost(NamedTuple):
    """What drawing takes. Work is in pixels x passes: a multiplication and an addition, 2 ns.

    Attributes:
        passes: Work for each pixel of a frame.
        view: Work for each view, however small: calls of kernels.
    """

    passes: float
    view: float = 30e3

    def of_view(self, frames: int, pixels: int) -> float:
        """Work for a view of so many frames of so many pixels."""
        return self.passes * frames * pixels + self.view


# The cost of a kind that does not say it.
UNKNOWN = Cost(100.0, 250e3)
Costs = Cost | Callable[[Any], Cost]


@dataclass(frozen=True)
class Perturbation:
    """One perturbation.

    Attributes:
        name: Unique name; also part of the key of its random draws.
        parameters: Class of its parameters: the contract's, or a plug-in's pydantic model.
        stochastic: Whether two draws differ; if not, every call gets the same numbers.
        apply: ``(frames (n, 3, h, w), parameters, draws) -> frames`` of the same shape and
            dtype, on the same device; must not write to its input. ``draws`` are a
            :class:`Draws`, which is a ``numpy.random.Generator`` too.
        many: Whether ``apply`` takes the frames of several views at once, view after view, and
            returns each with the bits that it has alone.
        cost: What drawing takes, of given parameters or always.
    """

    name: str
    parameters: type[Any]
    stochastic: bool
    apply: Apply
    many: bool = False
    cost: Costs = UNKNOWN


_TABLE: dict[str, Perturbation] = {}
_LOADING = threading.RLock()


def register(entry: Perturbation) -> Perturbation:
    """Add a perturbation to the table; raises FailedPrecondition if the name is taken."""
    if entry.name in _TABLE:
        raise FailedPrecondition(f"a perturbation named {entry.name!r} is already registered")
    _TABLE[entry.name] = entry
    return entry


def perturbation(
    name: str,
    *,
    parameters: type[Any],
    stochastic: bool,
    cost: Costs = UNKNOWN,
    many: bool = False,
) -> Callable[[Apply], Perturbation]:
    """Decorate a function to register it as the perturbation ``name``."""
    entry = partial(Perturbation, name, parameters, stochastic, many=many, cost=cost)
    return lambda apply: register(entry(apply))


def built_in(
    parameters: type[VisualChange], cost: Costs, *, stochastic: bool = False
) -> Callable[[Apply], Perturbation]:
    """Decorate the function of one of the contract's kinds, which takes many views at once.

    Its frames are a contiguous copy in float32 or float64, which it may write to.
    """

    def typed(apply: Apply) -> Perturbation:
        def applied(frames: Frames, given: Any, draws: Draws) -> Frames:  # noqa: ANN401
            wide = frames.to(
                torch.promote_types(frames.dtype, torch.float32),
                memory_format=torch.contiguous_format,
                copy=True,
            )
            return apply(wide, given, draws).to(frames.dtype)

        kind = parameters.kind
        return register(Perturbation(kind, parameters, stochastic, applied, many=True, cost=cost))

    return typed


def coloured(rgb: Sequence[float], like: Tensor) -> Float[Tensor, "3 1 1"]:
    """A colour, of parts in [0, 1], as model input."""
    parts = zip(rgb, IMAGENET_MEAN, IMAGENET_STD, strict=True)
    return filled([(part - mean) / std for part, mean, std in parts], like)


def resolve(spec: VisualChange) -> tuple[Perturbation, Any]:
    """Find the perturbation of a specification that is no composition, and its parameters.

    Raises:
        InvalidArgument: No such registered perturbation, or parameters that its model rejects; the
            field is below the kind.
        FailedPrecondition: An installed plug-in that cannot be loaded.
    """
    if not isinstance(spec, Registered):
        return _lookup(spec.kind), spec
    entry = _lookup(spec.name)
    if issubclass(entry.parameters, VisualChange):
        raise InvalidArgument("name", f"{spec.name!r} is built in; send it as that kind")
    try:
        return entry, entry.parameters.model_validate(spec.parameters)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(["parameters", *map(str, first["loc"])])
        raise InvalidArgument(field, f"{first['msg']}; found {first['input']!r:.80}") from error


def is_stochastic(spec: VisualChange) -> bool:
    """Return whether draws of a perturbation differ; raises as :func:`resolve`."""
    return any(resolve(step)[0].stochastic for step in spec.steps)


def step_field(spec: VisualChange, place: int) -> str:
    """Return the field, below that of a perturbation, of one of the changes that it is made of."""
    return f"parts[{place}].{spec.steps[place].kind}" if isinstance(spec, Composition) else ""


def require_known(specs: Iterable[VisualChange], path: str) -> None:
    """Resolve every perturbation of a request, at ``path`` with its index as ``{}``.

    Raises InvalidArgument, FailedPrecondition: As :func:`resolve`; names the path.
    """
    for index, spec in enumerate(specs):
        for place, step in enumerate(spec.steps):
            with below(f"{path.format(index)}.{spec.kind}"), below(step_field(spec, place)):
                resolve(step)


def _lookup(name: str) -> Perturbation:
    if (known := _TABLE.get(name)) is not None:
        return known
    with _LOADING:  # of requests that first name a plug-in at once, one registers it
        return _TABLE.get(name) or register(_load(name))


def _load(name: str) -> Perturbation:
    found = entry_points(group=ENTRY_POINT_GROUP, name=name)
    if not found:
        known = sorted({*_TABLE, *entry_points(group=ENTRY_POINT_GROUP).names})
        raise InvalidArgument("name", f"no perturbation named {name!r}; there are {known}")
    if len(found) > 1:
        raise FailedPrecondition(
            f"perturbation {name!r} comes from {len(found)} installed packages; keep one"
        )
    (entry,) = found
    try:
        loaded = entry.load()
    except (ImportError, AttributeError) as error:
        raise FailedPrecondition(
            f"perturbation {name!r} ({entry.value}) cannot be loaded: {error}"
        ) from error
    if not isinstance(loaded, Perturbation) or loaded.name != name:
        raise FailedPrecondition(
            f"entry point {name!r} ({entry.value}) must be a Perturbation with that name"
        )
    return loaded


def series_name(spec: VisualChange) -> str:
    """Name a perturbation in the metrics: by its short form, which has its severity.

    Of a plug-in's the severity alone: its other parameters are a caller's text.
    """
    return "+".join(
        f"{step.name}:{step.severity:g}" if isinstance(step, Registered) else str(step)
        for step in spec.steps
    )


def cost_of(spec: VisualChange) -> Cost:
    """Add up the costs of the changes that a change is made of; raises as :func:`resolve`."""
    found = [resolve(step) for step in spec.steps]
    costs = [x.cost(asked) if callable(x.cost) else x.cost for x, asked in found]
    return Cost(*map(sum, zip(*costs, strict=True)))


def drawing_work(views: Iterable[tuple[VisualChange, int]], pixels: int) -> float:
    """Price the work of views: the change of each, and its frames of so many pixels."""
    costs: dict[int, Cost] = {}
    work = 0.0
    for spec, frames in views:
        if (cost := costs.get(id(spec))) is None:
            cost = costs[id(spec)] = cost_of(spec)
        work += cost.of_view(frames, pixels)
    return work


def check_drawing(frames: int, pixels: int, field: str) -> None:
    """Raise InvalidArgument, ``field``, for a view that takes too much memory to draw.

    ``frames`` are those of the view, of so many pixels.
    """
    if (needed := COPIES * frames * pixels * 3 * 4) > MAX_VIEW_BYTES:
        raise InvalidArgument(
            field,
            f"a view of {frames} frames of {pixels} pixels takes {needed} bytes to draw, over "
            f"the limit of {MAX_VIEW_BYTES}; use a checkpoint of smaller frames",
            reason="VIEW_TOO_LARGE",
        )
