"""Declares what a sweep file may say, and checks it before any server is asked."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Annotated, Any, Literal, TypeVar

from acpc.contract import check, digested, from_plain
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
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    StringConstraints,
    ValidationInfo,
    model_validator,
)

from acpc_lab.evidence import ERROR_HALFLIFE
from acpc_lab.sweeps.reading import (
    Document,
    Label,
    Pattern,
    SweepFileError,
    found,
    known_keys,
)
from acpc_lab.sweeps.shifts import read_shifts

T = TypeVar("T")
Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
Many = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else (value,))
Listed = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
_mode = partial(from_plain, NumericMode)
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Part(BaseModel):
    """A mapping of the file, with no other keys than its fields; a null is as if left out."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True
    )

    @model_validator(mode="before")
    @classmethod
    def _read_keys(cls, value: object) -> object:
        keys = {item.alias or name: item for name, item in cls.model_fields.items()}
        return known_keys(value, list(keys), [k for k, item in keys.items() if item.is_required()])


def record(cls: type[T], value: object, keys: Sequence[str] = (), lists: Sequence[str] = ()) -> T:
    """Reads a record of the contract, which says itself what its fields may hold.

    Args:
        cls: The record.
        value: What the file says.
        keys: Fields that may be given; empty: all.
        lists: Fields of which a single value will do for a list of one.
    """
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
    if not isinstance(value, str) or not value:
        raise found(value, "text; put it in quotes")
    return Pattern.of(value)


def _label(value: object) -> Label:
    infinite = isinstance(value, float) and not math.isfinite(value)
    if infinite or not isinstance(value, str | int | float):
        raise found(value, "text or a number")
    return value


def _identifier(key: str) -> str:
    if not key.isidentifier():
        raise ArgumentError("", f"found the label {key!r}, wanted letters, digits and underscores")
    return key


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
        if not isinstance(given["set"], str) or not given["set"].strip():
            raise found(given["set"], "text; put it in quotes", "set")
        return given["set"]
    for key in ("dataset", "task"):
        if key not in given:
            raise ArgumentError("", f"lacks the key {key}; or name finished anchors with set")
    if given.get("count") == 1:
        raise found(1, "a whole number from 2", "count")
    return record(DatasetAnchors, given)


Anchors = Annotated[CellAnchors, PlainValidator(_anchors)]


class Group(Part):
    """One item of ``checkpoints``.

    Attributes:
        names: Patterns of the names; a checkpoint belongs to the group when one fits.
        weights: Pattern of the weights file; None: by default.
        reference: The unaugmented checkpoint, whose name and weights may have ``{label}`` parts;
            None: no relative IR.
        labels: Given in the file; those of the patterns are added to them.
    """

    names: Annotated[tuple[Annotated[Pattern, PlainValidator(_pattern)], ...], Many] = Field(
        alias="name", min_length=1
    )
    weights: Annotated[Pattern, PlainValidator(_pattern)] | None = None
    reference: Annotated[CheckpointRef, PlainValidator(read_reference)] | None = None
    labels: dict[
        Annotated[str, AfterValidator(_identifier)], Annotated[Label, PlainValidator(_label)]
    ] = {}
    anchors: Anchors | None = None
    _place: str = PrivateAttr("")

    @property
    def place(self) -> str:
        """Where it stands in the file."""
        return self._place

    def texts(self, pattern: Pattern, ref: CheckpointRef) -> dict[str, str] | None:
        """Returns the labels in the names of a weights file; None where they do not fit."""
        labels = pattern.match(ref.name)
        more = self.weights.match(ref.weights) if self.weights else {}
        return None if labels is None or more is None else {**labels, **more}

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _labels_once(self) -> Group:
        for pattern in (*self.names, *([self.weights] if self.weights else [])):
            twice = set(pattern.labels) & set(self.labels)
            if twice:
                words = f"{twice.pop()} is a label here and a part of {pattern.text!r}"
                raise ArgumentError("", words)
        return self


def _protocols(value: object) -> tuple[ScoreProtocol, ...]:
    """Reads the protocol, once for each neighbourhood of a control over them."""
    if isinstance(value, str):
        value = {"reading": value}
    if isinstance(value, Mapping) and "seed" in value:
        raise ArgumentError("", "seed is no part of it here; list the seeds under seeds")
    near = value.get("neighbourhood") if isinstance(value, Mapping) else None
    several = near if isinstance(near, list) else [near]
    if not several or len(set(map(repr, several))) < len(several) or 0 in several:
        raise found(near, "numbers above 0 and up to 1, every one once", "neighbourhood")
    keys = [item.name for item in dataclasses.fields(ScoreProtocol) if item.name != "seed"]
    lists = ("extra_horizons", "extra_quantiles")
    given = [{**value, "neighbourhood": one} if isinstance(value, Mapping) else value
             for one in several]  # fmt: skip
    return tuple(record(ScoreProtocol, one, keys, lists) for one in given)


def _evidence(value: object) -> tuple[EvidenceOptions, int | None]:
    """Reads the options, and the epochs over which a watch spends half of the error."""
    given = dict(value) if isinstance(value, Mapping) else value
    halflife = given.pop("error_halflife", None) if isinstance(given, dict) else None
    halflife = ERROR_HALFLIFE if halflife is None else halflife
    if halflife is not False and (type(halflife) is not int or halflife < 1):
        raise found(halflife, "a whole number from 1", "error_halflife")
    return record(EvidenceOptions, given), halflife or None


def _once(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise found(list(seeds), "every seed once")
    return seeds


def _thresholds(value: object, info: ValidationInfo) -> tuple[Thresholds, tuple[str, ...]]:
    """Reads the thresholds, or the file that has them, with its warnings."""
    if not isinstance(value, str):
        return record(Thresholds, value), ()
    try:
        chosen = load_thresholds((info.context or {})["beside"] / value)
    except ArgumentError as error:
        raise ArgumentError("", error.description) from error
    return chosen.thresholds, tuple(f"{value}: {sentence}" for sentence in chosen.warnings)


def _until_decided(value: object) -> UntilDecided | None:
    """Reads the size of a batch, or true for the default one."""
    if isinstance(value, bool):
        return UntilDecided() if value else None
    if not isinstance(value, int) or value < 2:
        raise found(value, "a whole number from 2")
    return UntilDecided(value)


class SweepSpec(Part):
    """A sweep file that was checked.

    Attributes:
        name: Part of every request id: two sweeps of one name share the jobs they have in common.
        protocols: One for each value of ``protocol.neighbourhood``, each a cell of its own.
        concurrency: Jobs in flight at most.
        retries: Further attempts for a cell whose job failed.
        gate: Which verdict a run exits by, ``"point"`` or ``"confident"``.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[\w.\- ]{1,100}$")]
    description: Text = ""
    items: Annotated[tuple[Group, ...], Listed] = Field(alias="checkpoints", min_length=1)
    reference: Annotated[CheckpointRef, PlainValidator(read_reference)] | None = None
    anchors: Anchors | None = None
    shifts: Annotated[tuple[Perturbation, ...], PlainValidator(read_shifts)]
    seeds: Annotated[tuple[Seed, ...], Many, Field(min_length=1), AfterValidator(_once)] = (0,)
    protocols: Annotated[tuple[ScoreProtocol, ...], PlainValidator(_protocols)] = Field(
        alias="protocol", default=(ScoreProtocol(),)
    )
    limits: Annotated[tuple[Thresholds, tuple[str, ...]], PlainValidator(_thresholds)] = Field(
        alias="thresholds", default=(Thresholds(), ())
    )
    judging: Annotated[tuple[EvidenceOptions, int | None], PlainValidator(_evidence)] = Field(
        alias="evidence", default=(EvidenceOptions(), ERROR_HALFLIFE)
    )
    until_decided: Annotated[UntilDecided | None, PlainValidator(_until_decided)] = None
    gate: Literal["point", "confident"] = "point"
    numeric_mode: Annotated[NumericMode, PlainValidator(_mode)] = NumericMode(0)
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 4
    retries: Annotated[int, Field(ge=0, le=100)] = 3
    _source: Document = PrivateAttr()

    def bind(self, source: Document) -> None:
        """Keeps what it was read from, to name its places in errors.

        Raises SweepFileError: Neither an item nor the file says which anchors.
        """
        self._source = source
        for index, item in enumerate(self.items):
            item._place = f"checkpoints[{index}]"  # noqa: SLF001 - of this file
            if item.anchors is self.anchors is None:
                words = "lacks anchors; write them here or at the top of the file"
                raise self.error(item.place, words)

    def error(self, place: str, description: str) -> SweepFileError:
        """Makes an error about a place in the file."""
        return self._source.error(place, description)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The items of ``checkpoints``, with the reference and the anchors that all share."""
        shared = {"reference": self.reference, "anchors": self.anchors}
        return tuple(
            item.model_copy(update={k: getattr(item, k) or v for k, v in shared.items()})
            for item in self.items
        )

    @property
    def thresholds(self) -> Thresholds:
        """What a checkpoint must reach."""
        return self.limits[0]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know of the thresholds, in words, where they come from a file."""
        return self.limits[1]

    @property
    def evidence(self) -> EvidenceOptions:
        """How sure verdicts have to be."""
        return self.judging[0]

    @property
    def error_halflife(self) -> int | None:
        """Epochs over which a watch spends half of the error; None: each has all of it."""
        return self.judging[1]

    @property
    def document(self) -> dict[str, Any]:
        """The file as plain values, with the thresholds that a file of its own holds."""
        document = dict(self._source.value)
        if isinstance(document.get("thresholds"), str):
            document["thresholds"] = digested(self.thresholds)
        plain: dict[str, Any] = json.loads(json.dumps(document))
        return plain
