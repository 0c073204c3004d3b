"""Everything that a request can name as a visual change: one kind, or several in a row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, TypeAlias, get_args

from acpc.contract.errors import ArgumentError, below
from acpc.contract.fields import bounded
from acpc.contract.messages import Codec, Wire
from acpc.contract.perturbations import Part
from acpc.contract.visual_changes import GivenViews, Registered, VisualChange
from acpc.v1 import perturbation_pb2 as pb

_PARTS: dict[str, type[Any]] = {cls.kind: cls for cls in get_args(Part)}
# Bytes of a specification that is kept once it was read: few are asked for again and again.
MAX_KEPT = 256


def _load_of(within: bool, message: pb.PerturbationSpec, *, strict: bool) -> Any:
    """Reads a specification, a part of a composition where it is ``within`` one."""
    if message.ByteSize() > MAX_KEPT:
        return _read(within, message, strict)
    return _kept(within, message.SerializeToString(deterministic=True), strict)


@lru_cache(1024)
def _kept(within: bool, data: bytes, strict: bool) -> Any:
    return _read(within, pb.PerturbationSpec.FromString(data), strict)


def _read(within: bool, message: pb.PerturbationSpec, strict: bool) -> Any:
    kind, kinds = message.WhichOneof("kind"), _PARTS if within else KINDS
    if kind is None:
        if not strict:  # a kind of a newer release
            return None
        raise ArgumentError("", "choose a perturbation, for example gaussian_noise")
    if kind not in kinds:
        raise ArgumentError(kind, "cannot be a part of a composition; it stands alone")
    with below(kind):
        return kinds[kind].from_message(getattr(message, kind), strict=strict)


def _dump(spec: Perturbation) -> dict[str, object]:
    return {spec.kind: spec.to_message()}


class Composition(VisualChange, Wire[pb.Composition]):
    parts: tuple[Annotated[Part, Codec(partial(_load_of, True), _dump)], ...] = bounded(
        least=2, most=4
    )

    @property
    def severity(self) -> float:
        """1, or 0 where no part changes anything: one has another by its :func:`grids` alone."""
        return float(not self.changes_nothing)

    @property
    def changes_nothing(self) -> bool:
        """Tells whether every part leaves frames as they are."""
        return all(part.changes_nothing for part in self.parts)

    @property
    def steps(self) -> tuple[VisualChange, ...]:
        """Its parts."""
        return self.parts

    def __str__(self) -> str:
        return "+".join(map(str, self.parts))


Perturbation: TypeAlias = Part | GivenViews | Composition
KINDS: dict[str, type[Any]] = {cls.kind: cls for cls in get_args(Perturbation)}
"""The class of each kind, by its field name in ``PerturbationSpec``."""
Spec: TypeAlias = Annotated[Perturbation, Codec(partial(_load_of, False), _dump)]
"""A perturbation in a request: a ``PerturbationSpec`` on the wire."""


def read_spec(message: pb.PerturbationSpec) -> Perturbation:
    """Reads a ``PerturbationSpec``.

    Raises ArgumentError: No kind, or a parameter out of range, which it names below the kind.
    """
    spec: Perturbation = _load_of(False, message, strict=True)
    return spec


def grids(specs: Sequence[VisualChange]) -> list[tuple[str, float | None]]:
    """For each perturbation the name of the grid that it is a point of, and its severity there.

    Those of one kind are a grid. So are compositions of the same kinds in the same order of which
    exactly one part varies, as ``gaussian_noise+jpeg:30``; other compositions have no severity.
    """
    together: dict[tuple[str, ...], list[Composition]] = {}
    for spec in specs:
        if isinstance(spec, Composition):
            together.setdefault(tuple(map(_name, spec.parts)), []).append(spec)
    varying = {
        names: [
            place
            for place in range(len(names))
            if len({spec.parts[place].canonical_json for spec in alike}) > 1
        ]
        for names, alike in together.items()
    }
    found: list[tuple[str, float | None]] = []
    for spec in specs:
        if not isinstance(spec, Composition):
            found.append((_name(spec), spec.severity))
            continue
        texts, names = [*map(str, spec.parts)], tuple(map(_name, spec.parts))
        severity = None
        if len(varying[names]) == 1:
            (place,) = varying[names]
            texts[place], severity = names[place], spec.parts[place].severity
        found.append(("+".join(texts), severity))
    return found


def _name(part: VisualChange) -> str:
    return part.name if isinstance(part, Registered) else part.kind
