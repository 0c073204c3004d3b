"""Declares what a sweep file may say, and reads it before any server is asked."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self, TypeVar

from acpc.contract import Frozen, below, check, digested, from_plain
from acpc_client import (
    CheckpointRef,
    DatasetAnchors,
    EvidenceOptions,
    NumericMode,
    Perturbation,
    ScoreProtocol,
    Thresholds,
    UntilDecided,
    load_thresholds,
)
from acpc_client.errors import ArgumentError

from acpc_lab.evidence import ERROR_HALFLIFE, Gate
from acpc_lab.sweeps.reading import (
    Document,
    Label,
    Pattern,
    as_value,
    found,
    known_keys,
    read_document,
    read_shifts,
)

T = TypeVar("T")
Reader = Callable[[Any], Any]
_MANY = "a list with at least one item"
_TEXT = "text; put it in quotes"


def said(read: Reader, default: object = MISSING, *, key: str = "") -> Any:  # noqa: ANN401
    """Declares a field by what reads it from the file; ``key`` where it has another name there."""
    return field(default=default, metadata={"read": read, "key": key})


class Part(Frozen, kw_only=True):
    """A mapping of the file, with no other keys than its fields; a null is as if left out."""

    @classmethod
    def read(cls, value: object, **known: object) -> Self:
        """Reads the fields that the file may say; ``known`` are others.

        Raises ArgumentError: A key is unknown or missing, or a value does not fit; names its place.
        """
        fields = [(f.metadata["key"] or f.name, f) for f in dataclasses.fields(cls) if f.metadata]
        required = [key for key, f in fields if f.default is f.default_factory is MISSING]
        given = known_keys(value, list(dict(fields)), required)
        read = {f.name: _at(k, f.metadata["read"], given[k]) for k, f in fields if k in given}
        return cls(**read, **known)


def _at(place: str, read: Reader, value: object) -> Any:  # noqa: ANN401 - what it reads
    with below(place):
        return read(value)


def each(read: Reader, *, alone: bool = True) -> Reader:
    """Makes a reader of a list with at least one item; with ``alone`` one item will do for it."""

    def many(value: object) -> tuple[Any, ...]:
        if alone and not isinstance(value, list):
            return (read(value),)
        if not isinstance(value, list) or not value:
            raise found(value, _MANY)
        return tuple(_at(f"[{index}]", read, item) for index, item in enumerate(value))

    return many


def whole(low: int, high: int) -> Reader:
    """Makes a reader of a whole number in a range."""

    def read(value: object) -> int:
        if type(value) is not int:
            raise found(value, "a whole number")
        if not low <= value <= high:
            wanted = f"from {low}" if value < low else f"up to {high}"
            raise found(value, f"a whole number {wanted}")
        return value

    return read


def text(value: object) -> str:
    """Reads a text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise found(value, _TEXT)
    return value


def record(cls: type[T], value: object, keys: Sequence[str] = (), lists: Sequence[str] = ()) -> T:
    """Reads a record of the contract, which says itself what its fields may hold.

    Only ``keys`` may be given, where there are any; of ``lists`` a value will do for a list of one.
    """
    if isinstance(value, cls):
        return value
    given = known_keys(value, keys or [item.name for item in dataclasses.fields(cls)])  # type: ignore[arg-type]
    for key in lists:
        if key in given and not isinstance(given[key], list):
            given[key] = [given[key]]
    record = from_plain(cls, given)
    check(record)
    return record


def read_reference(value: object) -> CheckpointRef:
    """Reads a checkpoint by its name, or by name and weights."""
    if isinstance(value, str):
        return CheckpointRef(value)
    return record(CheckpointRef, value, ("name", "weights"))


def _pattern(value: object) -> Pattern:
    return Pattern.of(text(value))


def _labels(value: object) -> dict[str, Label]:
    if not isinstance(value, Mapping):
        raise found(value, "a mapping")
    for key, item in value.items():
        if not isinstance(key, str):
            raise found(key, _TEXT)
        if not key.isidentifier():
            words = f"found the label {key!r}, wanted letters, digits and underscores"
            raise ArgumentError(key, words)
        infinite = isinstance(item, float) and not math.isfinite(item)
        if infinite or not isinstance(item, str | int | float):
            raise found(item, "text or a number", key)
    return dict(value)


CellAnchors = DatasetAnchors | str
"""What a cell is scored on: anchors of a dataset, or the digest of a set."""


def _anchors(value: object) -> CellAnchors:
    """Reads anchors of a dataset, which ``{label}`` parts may name, or the digest of a set."""
    drawing = [item.name for item in dataclasses.fields(DatasetAnchors) if item.name != "sample"]
    given = known_keys(value, (*drawing, "set"))
    if "set" in given:
        surplus = ", ".join(key for key in given if key != "set")
        if surplus:
            raise ArgumentError("", f"set names finished anchors; leave out {surplus}")
        return str(_at("set", text, given["set"]))
    for key in ("dataset", "task"):
        if key not in given:
            raise ArgumentError("", f"lacks the key {key}; or name finished anchors with set")
    if given.get("count") == 1:
        raise found(1, "a whole number from 2", "count")
    return record(DatasetAnchors, given)


class Group(Part, kw_only=True):
    """One item of ``checkpoints``.

    Attributes:
        names: Patterns of the names; a checkpoint belongs to the group when one fits.
        weights: Pattern of the weights file; None: by default.
        reference: The unaugmented checkpoint, whose name and weights may have ``{label}`` parts;
            None: no relative IR.
        labels: Given in the file; those of the patterns are added to them.
        place: Where it stands in the file.
    """

    names: tuple[Pattern, ...] = said(each(_pattern), key="name")
    weights: Pattern | None = said(_pattern, None)
    reference: CheckpointRef | None = said(read_reference, None)
    labels: Mapping[str, Label] = field(
        default_factory=dict, metadata={"read": _labels, "key": "labels"}
    )
    anchors: CellAnchors | None = said(_anchors, None)
    place: str = ""

    def texts(self, pattern: Pattern, ref: CheckpointRef) -> dict[str, str] | None:
        """Returns the labels in the names of a weights file; None where they do not fit."""
        labels = pattern.match(ref.name)
        more = self.weights.match(ref.weights) if self.weights else {}
        return None if labels is None or more is None else {**labels, **more}


def _group(value: object) -> Group:
    group = Group.read({"name": value} if isinstance(value, str) else value)
    for pattern in filter(None, (*group.names, group.weights)):
        twice = set(pattern.labels) & set(group.labels)
        if twice:
            words = f"{twice.pop()} is a label here and a part of {pattern.text!r}"
            raise ArgumentError("", words)
    return group


def _name(value: object) -> str:
    if not re.fullmatch(r"[\w.\- ]{1,100}", text(value)):
        raise found(value, "up to 100 letters, digits, dots, dashes or spaces")
    return str(value)


def _seeds(value: object) -> tuple[int, ...]:
    seeds: tuple[int, ...] = each(whole(0, 2**63 - 1))(value)
    if len(set(seeds)) < len(seeds):
        raise found(list(seeds), "every seed once")
    return seeds


def _protocols(value: object) -> tuple[ScoreProtocol, ...]:
    """Reads the protocol, once for each neighbourhood of a control over them."""
    keys = [item.name for item in dataclasses.fields(ScoreProtocol) if item.name != "seed"]
    if not isinstance(value, Mapping):
        given = {"reading": value} if isinstance(value, str) else value
        return (record(ScoreProtocol, given, keys),)
    if "seed" in value:
        raise ArgumentError("", "seed is no part of it here; list the seeds under seeds")
    near = value.get("neighbourhood")
    several = near if isinstance(near, list) else [near]
    if not several or len(set(map(repr, several))) < len(several) or 0 in several:
        raise found(near, "numbers above 0 and up to 1, every one once", "neighbourhood")
    each_of = ({**value, "neighbourhood": one} for one in several)
    lists = ("extra_horizons", "extra_quantiles")
    return tuple(record(ScoreProtocol, one, keys, lists) for one in each_of)


def _evidence(value: object) -> EvidenceOptions:
    """Reads the options, and leaves out what is beside them."""
    if isinstance(value, Mapping):
        value = {key: item for key, item in value.items() if key != "error_halflife"}
    return record(EvidenceOptions, value)


def _halflife(value: object) -> int | None:
    """Reads what stands beside the options of the evidence."""
    given = value.get("error_halflife") if isinstance(value, Mapping) else None
    halflife = ERROR_HALFLIFE if given is None else given
    if halflife is not False and (type(halflife) is not int or halflife < 1):
        raise found(halflife, "a whole number from 1", "error_halflife")
    return halflife or None


def _until_decided(value: object) -> UntilDecided | None:
    """Reads the size of a batch, or true for the default one."""
    if isinstance(value, bool):
        return UntilDecided() if value else None
    if not isinstance(value, int) or value < 2:
        raise found(value, "a whole number from 2")
    return record(UntilDecided, {"batch": value})


class SweepSpec(Part, kw_only=True):
    """A sweep file that was checked.

    Attributes:
        name: Part of every request id: two sweeps of one name share the jobs they have in common.
        protocols: One for each value of ``protocol.neighbourhood``, each a cell of its own.
        thresholds: What a checkpoint must reach.
        evidence: How sure verdicts have to be.
        error_halflife: Epochs over which a watch spends half of the error; None: each has all.
        concurrency: Jobs in flight at most.
        retries: Further attempts for a cell whose job failed.
        gate: Which verdict a run exits by.
        source: What it was read from.
        warnings: What to know of the thresholds, in words, where they come from a file.
    """

    name: str = said(_name)
    description: str = said(text, "")
    items: tuple[Group, ...] = said(each(_group, alone=False), key="checkpoints")
    reference: CheckpointRef | None = said(read_reference, None)
    anchors: CellAnchors | None = said(_anchors, None)
    shifts: tuple[Perturbation, ...] = said(read_shifts)
    seeds: tuple[int, ...] = said(_seeds, (0,))
    protocols: tuple[ScoreProtocol, ...] = said(_protocols, (ScoreProtocol(),), key="protocol")
    thresholds: Thresholds = said(partial(record, Thresholds), Thresholds())
    evidence: EvidenceOptions = said(_evidence, EvidenceOptions())
    error_halflife: int | None = said(_halflife, ERROR_HALFLIFE, key="evidence")
    until_decided: UntilDecided | None = said(_until_decided, None)
    gate: Gate = said(partial(from_plain, Gate), Gate.POINT)
    numeric_mode: NumericMode = said(partial(from_plain, NumericMode), NumericMode(0))
    concurrency: int = said(whole(1, 1000), 4)
    retries: int = said(whole(0, 100), 3)
    source: Document
    warnings: tuple[str, ...]

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The items of ``checkpoints`` with their places, and what all of them share.

        Raises SweepFileError: Neither an item nor the file says which anchors.
        """
        groups = []
        for index, item in enumerate(self.items):
            reference, anchors = item.reference or self.reference, item.anchors or self.anchors
            place = f"checkpoints[{index}]"
            if anchors is None:
                words = "lacks anchors; write them here or at the top of the file"
                raise self.source.error(place, words)
            groups.append(replace(item, reference=reference, anchors=anchors, place=place))
        return tuple(groups)

    @property
    def document(self) -> dict[str, Any]:
        """The file as plain values, with the thresholds that a file of its own holds."""
        document = dict(self.source.value)
        if isinstance(document.get("thresholds"), str):
            document["thresholds"] = digested(self.thresholds)
        plain: dict[str, Any] = json.loads(json.dumps(document))
        return plain


def load_spec(file: Path) -> SweepSpec:
    """Reads a sweep file.

    Raises SweepFileError: The file cannot be run as it is; names the line, the place and the fix.
    """
    return read_spec(read_document(file), file.stem, file.parent)


def read_spec(document: Document | Mapping[str, Any], default_name: str, beside: Path) -> SweepSpec:
    """Reads a sweep from plain values; files that it names are relative to ``beside``.

    Raises SweepFileError: The document cannot be run as it is; names the place and the fix.
    """
    source = document if isinstance(document, Document) else Document(document)
    given, warnings = source.value, tuple[str, ...]()
    try:
        if isinstance(given, Mapping):
            given = {**given, "name": default_name if given.get("name") is None else given["name"]}
            if isinstance(file := given.get("thresholds"), str):
                given["thresholds"], warnings = _calibrated(file, beside)
        spec = SweepSpec.read(given, source=source, warnings=warnings)
    except ArgumentError as error:
        words = re.search(r"found '([^']*)', wanted (float|a number)", error.description)
        as_text = words and isinstance(as_value(words[1]), int | float)
        hint = "; YAML reads 1e-3 as text, write 1.0e-3" if as_text else ""
        raise source.error(error.field, f"{error.description}{hint}") from error
    _ = spec.groups  # raises what they lack
    return spec


def _calibrated(file: str, beside: Path) -> tuple[Thresholds, tuple[str, ...]]:
    """The thresholds that a file holds, and what to know of them."""
    try:
        chosen = load_thresholds(beside / file)
    except ArgumentError as error:
        raise ArgumentError("thresholds", error.description) from error
    return chosen.thresholds, tuple(f"{file}: {sentence}" for sentence in chosen.warnings)


def example(file: Path) -> str:
    """Returns the commented sweep file that ``acpc init`` writes."""
    commented = Path(__file__).with_name("example.yaml").read_text(encoding="utf-8")
    return commented.format(file=file.name, name=file.stem)


def folder_of(file: Path, spec: SweepSpec) -> Path:
    """Returns where the sweep of a file keeps its plan, state and scores."""
    return file.with_name(f"{spec.name}.sweep")
