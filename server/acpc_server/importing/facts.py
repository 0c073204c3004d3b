"""The numbers that describe a world model in its file, and where each comes from.

Widths and depths follow from the tensors' shapes, attention heads and epsilons from the pickled
object or the run's config. A number with several sources must be the same in all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from acpc_server.errors import InvalidArgument
from acpc_server.importing.reading import Records
from acpc_server.models import JsonObject, Node, StoredTensor, unsafe

TENSORS, OBJECT, CODE = "its tensors", "the object", "the training code, always"
HEADS = ("projector", "pred_proj")
# What is noted beside numbers.
WORDS_OF_HEADS = [f"{head}.{key}" for head in HEADS for key in ("norm_fn", "act_fn")]
WORDS = {"augmentation", "family", "backbone", *WORDS_OF_HEADS}


class Kind(NamedTuple):
    """What modules must be whose path in a model matches a pattern whole.

    ``classes`` matches their class; ``otherwise`` says what another is; ``eps`` is theirs, if any.
    """

    paths: str
    classes: str
    otherwise: str
    eps: float | None = None


def torch_kind(paths: str, *names: str, eps: float | None = None) -> Kind:
    """Some of torch's own modules."""
    classes = rf"torch\.nn\.(.*\.)?({'|'.join(names)})"
    return Kind(paths, classes, f"not one of {', '.join(names)}", eps)


class Numbers(dict[str, tuple[Any, str]]):
    """Value and origin of each number by its name; a second, other value is an error."""

    def __init__(self, filename: str) -> None:
        super().__init__()
        self.filename = filename

    def add(self, name: str, value: object, origin: str) -> None:
        """Note a number, or check it against what is known; None says nothing."""
        if value is None:
            return
        if name not in WORDS:
            value = plain_number(value, f"{name} by {origin}", self.filename)
            if not name.endswith("eps") and value % 1:
                problem = f"{name} by {origin} is {value}, not a whole number"
                raise unsafe(self.filename, problem)
        known, first = self.setdefault(name, (value, origin))
        if known != value:
            problem = f"{name} is {known!r:.60} by {first}, but {value!r:.60} by {origin}"
            raise unsafe(self.filename, f"{problem}; these are two models")

    def value(self, name: str) -> Any:  # noqa: ANN401
        """The value of a number that is known."""
        return self[name][0]

    def need(self, name: str, hint: str) -> Any:  # noqa: ANN401
        """The value of a number; UnsafeCheckpoint with the hint where nothing says it."""
        if name not in self:
            raise unsafe(self.filename, f"nothing here says {name}; {hint}")
        return self.value(name)

    def part(self, part: str, keys: Iterable[str]) -> JsonObject:
        """Numbers of one part of a config, by its keys."""
        return {key: self.value(f"{part}.{key}") for key in keys}

    def shape(
        self, tensors: Records, name: str, says: Sequence[str], families: str
    ) -> tuple[int, ...]:
        """The shape of a tensor; notes what each axis says, nothing where that is empty."""
        found = stored.shape if isinstance(stored := tensors.get(name), StoredTensor) else ()
        if len(found) != len(says) or not all(found):
            held = ", ".join(sorted({key.partition(".")[0] for key in tensors})[:8])
            problem = f"no tensor {name} of {len(says)} axes, as {families}"
            raise unsafe(self.filename, f"{problem}; found: {held:.200}")
        for number, side in zip(says, found, strict=True):
            if number:
                self.add(number, side, TENSORS)
        return found

    def heads(self, path: str, module: Node, inner: int) -> int:
        """Note the heads of an attention over ``inner`` channels; return the width of one."""
        heads, scale = (module.attributes.get(key) for key in ("heads", "scale"))
        heads = plain_number(heads, f"{path}.heads", self.filename)
        self.add("predictor.heads", heads, OBJECT)
        width = int(inner // heads)
        if not isinstance(scale, float) or not abs(scale * width**0.5 - 1) <= 1e-6:
            raise unsafe(self.filename, f"{path}.scale is {scale!r:.40}, not {width} ** -0.5")
        return width


def check_modules(kinds: Sequence[Kind], modules: Mapping[str, Node], filename: str) -> None:
    """Raise UnsafeCheckpoint for a module that would be computed otherwise."""
    for path, module in modules.items():
        eps, approximate = (module.attributes.get(key) for key in ("eps", "approximate"))
        if approximate not in (None, "none"):
            raise unsafe(filename, f"{path} is a GELU approximated by {approximate!r:.20}")
        kind = next((one for one in kinds if re.fullmatch(one.paths, path)), None)
        if kind is not None and not re.fullmatch(kind.classes, module.kind):
            problem = f"{path} is a {module.kind!r:.100}, {kind.otherwise}"
            raise unsafe(filename, problem.removeprefix(" is "))  # of the model itself
        if kind is not None and kind.eps not in (None, eps):
            raise unsafe(filename, f"{path}.eps is {eps!r:.40}, not {kind.eps}")


def block_width(numbers: Numbers) -> None:
    """Make frameskip and action_dim known, each from the other and the width of action blocks.

    Raises InvalidArgument: Neither is known; asks for one by its option; UnsafeCheckpoint: They do
    not make the width.
    """
    width = numbers.value("action_encoder.input_dim")
    known = {key: numbers.value(key) for key in ("frameskip", "action_dim") if key in numbers}
    if not known:
        raise InvalidArgument(
            "frameskip",
            f"{numbers.filename}: action blocks are {width} wide, frameskip x action_dim, and "
            "neither the object nor a config says which; give --frameskip or --action-dim, as in "
            "training",
        )
    for key, other in (("frameskip", "action_dim"), ("action_dim", "frameskip")):
        if key not in known:
            if width % known[other]:
                problem = f"{other} {known[other]} does not divide action blocks {width} wide"
                raise unsafe(numbers.filename, problem)
            numbers.add(key, width // known[other], f"{width} / {other}")
    (skip, one), (dim, two) = numbers["frameskip"], numbers["action_dim"]
    if skip * dim != width:
        problem = f"frameskip {skip} x action_dim {dim} makes {skip * dim}, but action blocks are"
        raise unsafe(numbers.filename, f"{problem} {width} wide ({one}, {two})")


def as_bytes(config: JsonObject) -> bytes:
    """A config as ``config.json`` holds it."""
    return json.dumps(config, indent=2).encode() + b"\n"


def plain_number(value: object, name: str, filename: str) -> float | int:
    """A positive number, also as two equal sides; UnsafeCheckpoint for anything else."""
    if isinstance(value, list | tuple) and len(value) == 2 and value[0] == value[1]:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 31:
        raise unsafe(filename, f"{name} is {value!r:.40}, not a positive number")
    return value


def count(pattern: str, tensors: Mapping[str, object]) -> int:
    """Count the layers whose names begin so."""
    return len({found[1] for name in tensors if (found := re.match(pattern, name))})
