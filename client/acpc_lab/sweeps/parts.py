"""Declares the parts of a sweep file: checkpoints, anchors, and how to reach the server."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from acpc.contract import check, from_plain
from acpc_client import CheckpointRef, DatasetAnchors
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
    model_validator,
)

from acpc_lab.sweeps.reading import Label, Pattern, Wrong, found, known_keys

T = TypeVar("T")
Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
Many = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else (value,))
Listed = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
Counts = Annotated[int, Field(ge=1, lt=2**32)]
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


def record(cls: type[T], value: object, lists: tuple[str, ...] = (), without: str = "") -> T:
    """Reads a record of the contract, which says itself what its fields may hold."""
    keys = [item.name for item in dataclasses.fields(cls) if item.name != without]  # type: ignore[arg-type]
    given = known_keys(value, keys)
    for key in lists:
        if key in given and not isinstance(given[key], list):
            given[key] = [given[key]]
    try:
        record = from_plain(cls, given)
        check(record)
    except ArgumentError as error:
        raise Wrong(error.description, error.field) from error
    return record


def read_reference(value: object) -> CheckpointRef:
    """Reads a checkpoint by its name, or by name and weights. Raises Wrong: It is neither."""
    if isinstance(value, str):
        return CheckpointRef(value)
    given = known_keys(value, ("name", "weights"), ("name",))
    for key, item in given.items():
        if not isinstance(item, str):
            raise found(item, "text; put it in quotes", key)
    return CheckpointRef(**given)


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
        raise Wrong(f"found the label {key!r}, wanted letters, digits and underscores")
    return key


class AnchorPlace(Part):
    """Where anchors come from. Dataset, task and upload may have ``{label}`` parts.

    Attributes:
        set: Digest of an anchor set.
        upload: A file, or a folder, of anchors of the caller's own.
        freeze: Make an anchor set of the dataset first, and score on that.
        history: Frames of history in a set that is made; None: what the file says, or 3.
    """

    dataset: Text | None = None
    task: Text | None = None
    count: Annotated[int, Field(ge=2, lt=2**32)] | None = None
    seed: Seed | None = None
    frameskip: Counts | None = None
    one_per_episode: bool | None = None
    window_future_frames: Counts | None = None
    episodes: Text | None = None
    freeze: bool = False
    history: Counts | None = None
    set: Text | None = None
    upload: Text | None = None

    @model_validator(mode="after")
    def _fits(self) -> AnchorPlace:
        for alone, others in (("set", ()), ("upload", ("history",))):
            surplus = [key for key in self.model_fields_set if key not in (alone, *others)]
            if alone in self.model_fields_set and surplus:
                listed = ", ".join(key for key in type(self).model_fields if key in surplus)
                raise Wrong(f"{alone} names finished anchors; leave out {listed}")
        if self.set or self.upload:
            return self
        for key in ("dataset", "task"):
            if getattr(self, key) is None:
                words = "or name finished anchors with set or upload"
                raise Wrong(f"lacks the key {key}; {words}")
        if self.history is not None and not self.freeze:
            raise Wrong("is for an anchor set; add freeze: true, or leave it out", "history")
        return self

    @property
    def drawn(self) -> DatasetAnchors | None:
        """Anchors drawn from a dataset; None for finished ones."""
        names = {item.name for item in dataclasses.fields(DatasetAnchors)} & self.model_fields_set
        given: dict[str, Any] = {name: getattr(self, name) for name in names}
        return DatasetAnchors(**given) if self.dataset else None

    def filled(self, fill: Callable[[str], str]) -> AnchorPlace:
        """Returns the same with ``fill`` applied to whatever may have labels."""
        texts = {name: getattr(self, name) for name in ("dataset", "task", "upload")}
        return self.model_copy(update={name: fill(text) for name, text in texts.items() if text})


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
    anchors: AnchorPlace | None = None
    _place: str = PrivateAttr("")

    @property
    def place(self) -> str:
        """Where it stands in the file."""
        return self._place

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _labels_once(self) -> Group:
        for pattern in (*self.names, *([self.weights] if self.weights else [])):
            twice = set(pattern.labels) & set(self.labels)
            if twice:
                raise Wrong(f"{twice.pop()} is a label here and a part of {pattern.text!r}")
        return self


class TlsFiles(Part):
    """Files of a connection by TLS; with a certificate and its key: mutual TLS."""

    ca_file: Text | None = None
    certificate_file: Text | None = None
    key_file: Text | None = None
    server_name: Text | None = None

    @model_validator(mode="after")
    def _paired(self) -> TlsFiles:
        if (self.certificate_file is None) != (self.key_file is None):
            raise Wrong("mutual TLS needs both certificate_file and key_file")
        return self


class Server(Part):
    """Where the server is, and how to get in."""

    target: Text | None = None
    tls: TlsFiles | None = None
    token_file: Text | None = None
