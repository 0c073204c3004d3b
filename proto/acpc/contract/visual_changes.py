"""The base of every visual change, and the kinds that are not the server's own.

Those are what a plug-in draws and what an anchor set brings.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import field, fields
from functools import cached_property
from typing import ClassVar

from acpc.contract.errors import ArgumentError
from acpc.contract.fields import Bounds, Frozen, bounded, changed, check
from acpc.contract.messages import Wire
from acpc.contract.normal_form import normalise
from acpc.contract.plain import to_plain
from acpc.v1 import perturbation_pb2 as pb

_KINDS = {field.message_type: field.name for field in pb.PerturbationSpec.DESCRIPTOR.fields}


class VisualChange(Frozen):
    """Base of every kind: what a change is called, how strong it is, and its digest.

    ``examples`` are parameters in the short form: mild, medium and strong. The medium ones are the
    paper's, where it has any. None of a kind whose severity cannot be chosen.
    """

    kind: ClassVar[str]  # its field in ``PerturbationSpec``, for example "gaussian_noise"
    examples: ClassVar[tuple[float | str, ...]] = ()
    neutral: ClassVar[int] = 0  # the first parameter of the change that changes nothing
    checks_itself: ClassVar[bool] = True

    def __init_subclass__(cls, **made: bool) -> None:
        super().__init_subclass__(**made)
        if hasattr(cls, "message_type"):
            cls.kind = _KINDS[cls.message_type.DESCRIPTOR]

    def __post_init__(self) -> None:
        normalise(self)
        check(self)

    @property
    def severity(self) -> float:
        """Strength in the kind's own unit: how far the first parameter is from the neutral one."""
        return float(abs(self.first - self.neutral))

    @property
    def changes_nothing(self) -> bool:
        """Whether the view certainly is the frames themselves, bit for bit.

        Of what a plug-in or the owner of a set makes nobody knows: its first parameter is a name.
        """
        return self.first == self.neutral

    @property
    def steps(self) -> tuple[VisualChange, ...]:
        """The changes that are made one after the other: this one."""
        return (self,)

    @property
    def canonical_json(self) -> str:
        """The one JSON text of this change: sorted keys, no spaces, defaults included."""
        return json.dumps(to_plain(self), sort_keys=True, separators=(",", ":"))

    @cached_property
    def digest(self) -> str:
        """sha256 of the canonical JSON, in hexadecimal; receipts are made of it."""
        return hashlib.sha256(self.canonical_json.encode()).hexdigest()

    def to_spec(self) -> pb.PerturbationSpec:
        """The ``PerturbationSpec`` on the wire."""
        return pb.PerturbationSpec(**{self.kind: self.to_message()})  # type: ignore[attr-defined]

    @property
    def first(self) -> float:
        """The first parameter."""
        first: float = getattr(self, fields(self)[0].name)
        return first

    def __str__(self) -> str:
        """The short form; ``acpc.contract.parse`` reads it."""
        return f"{self.kind}:" + "@".join(map(shown, changed(self).values()))


_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:=+-]{0,99}")


def check_group(name: str, field: str) -> None:
    """Raises ArgumentError, which names ``field``, for what is no name of a group of views."""
    if not _GROUP.fullmatch(name):
        raise ArgumentError(
            field, f"found {name[:120]!r}, wanted 1 to 100 letters, digits or . _ : = + -"
        )


class Registered(VisualChange, Wire[pb.RegisteredPerturbation]):
    name: str = bounded(least=1, most=200)
    parameters: Mapping[str, float] = field(
        default_factory=dict, metadata={"bounds": Bounds(max_length=64)}
    )

    @property
    def severity(self) -> float:
        """The parameter called ``severity``; 0 when there is none."""
        return float(self.parameters.get("severity", 0.0))

    def __str__(self) -> str:
        listed = ",".join(f"{key}={value:g}" for key, value in sorted(self.parameters.items()))
        return f"{self.name}:{listed}" if listed else self.name


class GivenViews(VisualChange, Wire[pb.GivenViews]):
    """Views of each history that the uploader of a job's anchor set made, one group of them.

    Draw i is the i-th view of the group, whatever the seed. Its severity is the number after the
    last colon of the group's name, as of ``light:0.5``, without its sign; 1 where there is none.
    """

    group: str = bounded(least=1, most=100)

    def check_rules(self) -> None:
        """The group's name may be one."""
        check_group(self.group, "group")

    @property
    def severity(self) -> float:
        """The number after the last colon of the name; 1 where there is none."""
        try:
            level = abs(float(self.group.rpartition(":")[2]))
        except ValueError:
            return 1.0
        return level if math.isfinite(level) else 1.0

    def __str__(self) -> str:
        return f"{self.kind}:{self.group}"


def shown(value: float) -> str:
    """A number in the fewest characters that read back as it."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))
