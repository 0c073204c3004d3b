"""The table of perturbations: name, parameter model, whether it is random, and the function.

A distribution adds its own by an entry point in the group ``acpc.perturbations`` whose name is the
perturbation's and whose object is a ``Perturbation``; a program that embeds the server may call
``register``. No plug-in is imported before a request asks for it by name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

import numpy as np
from pydantic import BaseModel
from torch import Tensor

from acpc_server.errors import FailedPrecondition, InvalidArgument

ENTRY_POINT_GROUP = "acpc.perturbations"

Apply = Callable[[Tensor, Any, np.random.Generator], Tensor]


@dataclass(frozen=True)
class Perturbation:
    """One perturbation.

    Attributes:
        name: Unique name; also part of the key of its random draws.
        parameters: Pydantic model of its parameters.
        stochastic: Whether two draws differ. If not, every call gets the same generator, so the
            result can depend on the frames and the parameters only.
        apply: ``(frames (n, 3, h, w), parameters, generator) -> frames`` of the same shape and
            dtype, on the same device; must not write to its input.
    """

    name: str
    parameters: type[BaseModel]
    stochastic: bool
    apply: Apply


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
    name: str, *, parameters: type[BaseModel], stochastic: bool
) -> Callable[[Apply], Perturbation]:
    """Decorator that registers a function as the perturbation ``name``."""
    return lambda apply: register(Perturbation(name, parameters, stochastic, apply))


def lookup(name: str) -> Perturbation:
    """The perturbation called ``name``, from the table or from an installed plug-in.

    Raises:
        InvalidArgument: There is none (field ``name``).
        FailedPrecondition: The plug-in cannot be loaded or is not what it should be.
    """
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
