"""The table of perturbations: name, parameters, whether it is random, and the function.

A distribution adds its own by an entry point in the group ``acpc.perturbations`` whose name is the
perturbation's and whose object is a ``Perturbation``; a program that embeds the server may call
``register``. No plug-in is imported before a request asks for it by name.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from typing import Any

from acpc.contract import Registered, VisualChange
from jaxtyping import Float
from pydantic import ValidationError
from torch import Tensor

from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.perturb.draws import Draws

ENTRY_POINT_GROUP = "acpc.perturbations"

Frames = Float[Tensor, "n 3 h w"]
Apply = Callable[[Tensor, Any, Draws], Tensor]


@dataclass(frozen=True)
class Perturbation:
    """One perturbation.

    Attributes:
        name: Unique name; also part of the key of its random draws.
        parameters: Class of its parameters: the contract's, or a plug-in's pydantic model.
        stochastic: Whether two draws differ. If not, every call gets the same numbers, so the
            result can depend on the frames and the parameters only.
        apply: ``(frames (n, 3, h, w), parameters, draws) -> frames`` of the same shape and
            dtype, on the same device; must not write to its input. ``draws`` are a
            :class:`Draws`, which is a ``numpy.random.Generator`` too.
        many: Whether ``apply`` may be given the frames of several views at once, view after view,
            and gives each the bits that it has alone.
        by_frame: Whether a frame's view follows from that frame and its draw: neither its place in
            the history nor the frames beside it change a bit. Then a planner that moves on has
            only the view of its new frame made and encoded.
    """

    name: str
    parameters: type[Any]
    stochastic: bool
    apply: Apply
    many: bool = False
    by_frame: bool = False


_TABLE: dict[str, Perturbation] = {}


def register(entry: Perturbation) -> Perturbation:
    """Adds a perturbation to the table.

    Raises:
        FailedPrecondition: The name is taken.
    """
    if entry.name in _TABLE:
        raise FailedPrecondition(f"a perturbation named {entry.name!r} is already registered")
    _TABLE[entry.name] = entry
    return entry


def perturbation(
    name: str,
    *,
    parameters: type[Any],
    stochastic: bool,
    many: bool = False,
    by_frame: bool = False,
) -> Callable[[Apply], Perturbation]:
    """Decorator that registers a function as the perturbation ``name``."""
    entry = partial(Perturbation, name, parameters, stochastic, many=many, by_frame=by_frame)
    return lambda apply: register(entry(apply))


def lookup(name: str) -> Perturbation:
    """The perturbation called ``name``, from the table or an installed plug-in; as ``resolve``."""
    return _TABLE.get(name) or register(_load(name))


def resolve(spec: VisualChange) -> tuple[Perturbation, Any]:
    """The registered perturbation that a specification means, and its parameters.

    Raises:
        InvalidArgument: No such registered perturbation, or parameters its model rejects; the field
            is below the kind.
        FailedPrecondition: An installed plug-in that cannot be loaded.
    """
    if not isinstance(spec, Registered):
        return lookup(spec.kind), spec
    entry = lookup(spec.name)
    if issubclass(entry.parameters, VisualChange):
        raise InvalidArgument("name", f"{spec.name!r} is built in; send it as that kind")
    try:
        return entry, entry.parameters.model_validate(spec.parameters)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(["parameters", *map(str, first["loc"])])
        raise InvalidArgument(field, f"{first['msg']}; found {first['input']!r:.80}") from error


def is_stochastic(spec: VisualChange) -> bool:
    """Whether draws of a perturbation differ; if not, one draw stands for all of them.

    The paper averages five draws of noise, and applies blur and resize once. Raises as ``resolve``.
    """
    return resolve(spec)[0].stochastic


def require_known(specs: Iterable[VisualChange], path: str) -> None:
    """Checks that every perturbation of a request can be resolved.

    ``path`` is that of each, with its index as ``{}``.

    Raises:
        InvalidArgument, FailedPrecondition: As ``resolve``; names the path.
    """
    for index, spec in enumerate(specs):
        try:
            resolve(spec)
        except InvalidArgument as error:
            raise error.below(f"{path.format(index)}.{spec.kind}") from error


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
