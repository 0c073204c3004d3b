"""Declares what a sweep file may say, and checks it before any server is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from acpc.contract import digested
from acpc_client import (
    Access,
    CheckpointRef,
    EvidenceOptions,
    NumericMode,
    Perturbation,
    ScoreProtocol,
    Thresholds,
    Tls,
    UntilDecided,
    load_thresholds,
)
from acpc_client.errors import ArgumentError
from pydantic import (
    Field,
    PlainValidator,
    PrivateAttr,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from acpc_lab.evidence import ERROR_HALFLIFE
from acpc_lab.sweeps.parts import (
    AnchorPlace,
    Group,
    Listed,
    Many,
    Part,
    Seed,
    Server,
    Text,
    read_reference,
    record,
)
from acpc_lab.sweeps.reading import Document, SweepFileError, Wrong, found
from acpc_lab.sweeps.shifts import Groups, read_shifts


def _protocols(value: object) -> tuple[ScoreProtocol, ...]:
    """Reads the protocol, once for each neighbourhood of a control over them."""
    if isinstance(value, str):
        value = {"reading": value}
    if isinstance(value, Mapping) and "seed" in value:
        raise Wrong("seed is no part of it here; list the seeds under seeds")
    near = value.get("neighbourhood") if isinstance(value, Mapping) else None
    several = near if isinstance(near, list) else [near]
    if not several or len(set(map(repr, several))) < len(several) or 0 in several:
        raise found(near, "numbers above 0 and up to 1, every one once", "neighbourhood")
    lists = ("extra_horizons", "extra_quantiles")
    given = [{**value, "neighbourhood": one} if isinstance(value, Mapping) else value
             for one in several]  # fmt: skip
    return tuple(record(ScoreProtocol, one, lists, "seed") for one in given)


def _evidence(value: object) -> tuple[EvidenceOptions, int | None]:
    """Reads the options, and the epochs over which a watch spends half of the error."""
    given = dict(value) if isinstance(value, Mapping) else value
    halflife = given.pop("error_halflife", None) if isinstance(given, dict) else None
    halflife = ERROR_HALFLIFE if halflife is None else halflife
    if halflife is not False and (type(halflife) is not int or halflife < 1):
        raise found(halflife, "a whole number from 1", "error_halflife")
    return record(EvidenceOptions, given), halflife or None


def _thresholds(value: object, info: ValidationInfo) -> tuple[Thresholds, tuple[str, ...]]:
    """Reads the thresholds, or the file that has them, with its warnings."""
    if not isinstance(value, str):
        return record(Thresholds, value), ()
    try:
        chosen = load_thresholds((info.context or {})["beside"] / value)
    except ArgumentError as error:
        raise Wrong(error.description) from error
    return chosen.thresholds, tuple(f"{value}: {sentence}" for sentence in chosen.warnings)


def _until_decided(value: object) -> UntilDecided | None:
    """Reads the size of a batch, or true for the default one."""
    if isinstance(value, bool):
        return UntilDecided() if value else None
    if not isinstance(value, int) or value < 2:
        raise found(value, "a whole number from 2")
    return UntilDecided(value)


def _numeric_mode(value: object) -> NumericMode:
    names = [item.name.lower() for item in NumericMode]
    if value not in names:
        raise found(value, f"one of {', '.join(names)}")
    return NumericMode[str(value).upper()]


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
    server: Server = Server()
    items: Annotated[tuple[Group, ...], Listed] = Field(alias="checkpoints", min_length=1)
    reference: Annotated[CheckpointRef, PlainValidator(read_reference)] | None = None
    anchors: AnchorPlace | None = None
    shifts: Annotated[tuple[Perturbation | Groups, ...], PlainValidator(read_shifts)]
    seeds: Annotated[tuple[Seed, ...], Many, Field(min_length=1)] = (0,)
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
    numeric_mode: Annotated[NumericMode, PlainValidator(_numeric_mode)] = NumericMode(0)
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 4
    retries: Annotated[int, Field(ge=0, le=100)] = 3
    _source: Document = PrivateAttr()

    @field_validator("seeds")
    @classmethod
    def _once(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise found(list(seeds), "every seed once")
        return seeds

    def bind(self, source: Document) -> None:
        """Keeps what it was read from, to name its places in errors."""
        self._source = source
        for index, item in enumerate(self.items):
            item._place = f"checkpoints[{index}]"  # noqa: SLF001 - of this file

    def error(self, place: str, description: str) -> SweepFileError:
        """Makes an error about a place in the file."""
        return self._source.error(place, description)

    @property
    def target(self) -> str | None:
        """``host:port`` of the server; None: whatever the caller uses."""
        return self.server.target

    @property
    def access(self) -> Access:
        """How to get in."""
        access = Access()
        if self.server.token_file:
            access["token"] = Path(self.server.token_file)
        if self.server.tls:
            access["tls"] = Tls(**self.server.tls.model_dump(exclude_none=True))
        return access

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The items of ``checkpoints``, with the reference and the anchors that all share."""
        shared = {"reference": self.reference, "anchors": self.anchors}
        return tuple(
            item.model_copy(update={k: getattr(item, k) or v for k, v in shared.items()})
            for item in self.items
        )

    @property
    def protocol(self) -> ScoreProtocol:
        """The first protocol; the others differ by the neighbourhood."""
        return self.protocols[0]

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
