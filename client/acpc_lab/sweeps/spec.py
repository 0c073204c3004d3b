"""Checks what a sweep file says, before any server is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acpc.contract import check, digested
from acpc_client import (
    Access,
    CheckpointRef,
    EvidenceOptions,
    NumericMode,
    PartnerPast,
    Perturbation,
    Population,
    Reading,
    ScoreProtocol,
    Thresholds,
    Tls,
    UntilDecided,
    load_thresholds,
)
from acpc_client.errors import ArgumentError

from acpc_lab.evidence import ERROR_HALFLIFE
from acpc_lab.sweeps.anchors import SEED_LIMIT, AnchorPlace, read_anchors
from acpc_lab.sweeps.reading import Label, Node, Pattern, Section, read_document
from acpc_lab.sweeps.shifts import Groups, read_shifts

KEYS = (
    "name", "description", "server", "checkpoints", "reference", "anchors", "shifts", "seeds",
    "protocol", "thresholds", "evidence", "until_decided", "gate", "numeric_mode", "concurrency",
    "retries",
)  # fmt: skip
_OF_FILE = ("source_digest", "family")
READINGS = ("paper", "released")
POPULATIONS = ("dataset", "trajectories")
_GROUP_KEYS = ("name", "weights", "reference", "labels", "anchors")


@dataclass(frozen=True)
class Group:
    """One item of ``checkpoints``.

    Attributes:
        names: Patterns of the names; a checkpoint belongs to the group when one fits.
        weights: Pattern of the weights file; None: by default.
        reference: The unaugmented checkpoint, whose name and weights may have ``{label}`` parts;
            None: no relative IR.
        labels: Given in the file; those of the patterns are added to them.
    """

    names: tuple[Pattern, ...]
    weights: Pattern | None
    reference: CheckpointRef | None
    labels: Mapping[str, Label]
    anchors: AnchorPlace
    node: Node


@dataclass(frozen=True)
class SweepSpec:
    """A sweep file that was checked.

    Attributes:
        name: Part of every request id: two sweeps of one name share the jobs they have in common.
        target: ``host:port`` of the server; None: whatever the caller uses.
        access: How to get in.
        neighbourhoods: Values of ``protocol.neighbourhood``, each a cell of its own.
        concurrency: Jobs in flight at most.
        retries: Further attempts for a cell whose job failed.
        error_halflife: Epochs over which a watch spends half of the error of ``evidence``; None:
            each epoch is judged as if it were the only one.
        gate: Which verdict a run exits by, ``"point"`` or ``"confident"``.
        warnings: What to know of the thresholds, in words, where they come from a file.
        document: The file as plain values, with the thresholds that a file of its own holds.
    """

    name: str
    description: str
    target: str | None
    access: Access
    groups: tuple[Group, ...]
    shifts: tuple[Perturbation | Groups, ...]
    seeds: tuple[int, ...]
    protocol: ScoreProtocol
    neighbourhoods: tuple[float, ...]
    thresholds: Thresholds
    evidence: EvidenceOptions
    error_halflife: int | None
    until_decided: UntilDecided | None
    numeric_mode: NumericMode
    concurrency: int
    retries: int
    gate: str
    warnings: tuple[str, ...]
    document: Mapping[str, Any] = field(repr=False)


def example(file: Path) -> str:
    """Returns the commented sweep file that ``acpc sweep init`` writes."""
    text = Path(__file__).with_name("example.yaml").read_text(encoding="utf-8")
    return text.format(file=file.name, name=file.stem)


def load_spec(file: Path) -> SweepSpec:
    """Reads a sweep file.

    Raises SweepFileError: The file cannot be run as it is; names the line, the place and the fix.
    """
    return read_spec(read_document(file), file.stem, file.parent)


def folder_of(file: Path, spec: SweepSpec) -> Path:
    """Returns where the sweep of a file keeps its plan, journal and scores."""
    return file.with_name(f"{spec.name}.sweep")


def read_spec(root: Node, default_name: str, beside: Path) -> SweepSpec:
    """Reads a sweep document; files that it names are relative to the folder ``beside``.

    Raises SweepFileError: The document cannot be run as it is; names the place and the fix.
    """
    top = root.section(KEYS, required=("checkpoints", "shifts"))
    name = top.get("name", Node(default_name, "name"))
    if not re.fullmatch(r"[\w.\- ]{1,100}", name.text()):
        raise name.found("up to 100 letters, digits, dots, dashes or spaces")
    target, access = top.read("server", _server, (None, Access()))
    thresholds, warnings = top.read(
        "thresholds", lambda node: _thresholds(node, beside), (Thresholds(), ())
    )
    document = root.value
    if "thresholds" in top and isinstance(top["thresholds"].value, str):
        document = {**document, "thresholds": digested(thresholds)}
    protocol, neighbourhoods = top.read("protocol", _protocol, (ScoreProtocol(), _NEAR))
    evidence, halflife = top.read("evidence", _evidence, (EvidenceOptions(), ERROR_HALFLIFE))
    return SweepSpec(
        name=name.text(),
        description=top.read("description", Node.text, ""),
        target=target,
        access=access,
        groups=tuple(_group(item, top) for item in top["checkpoints"].items()),
        shifts=read_shifts(top["shifts"]),
        seeds=top.read("seeds", _seeds, (0,)),
        protocol=protocol,
        neighbourhoods=neighbourhoods,
        thresholds=thresholds,
        evidence=evidence,
        error_halflife=halflife,
        until_decided=top.read("until_decided", _until_decided, None),
        gate=top.read("gate", lambda node: node.choice(("point", "confident")), "point"),
        warnings=warnings,
        numeric_mode=top.read("numeric_mode", _numeric_mode, NumericMode(0)),
        concurrency=top.read("concurrency", lambda node: node.integer(1, 1000), 4),
        retries=top.read("retries", lambda node: node.integer(0, 100), 3),
        document=json.loads(json.dumps(document)),
    )


def _server(node: Node) -> tuple[str | None, Access]:
    section = node.section(("target", "tls", "token_file"))
    target = section["target"].text() if "target" in section else None
    access = Access()
    if "token_file" in section:
        access["token"] = Path(section["token_file"].text())
    if "tls" in section:
        tls = section["tls"]
        files = tls.section(("ca_file", "certificate_file", "key_file", "server_name"))
        if ("certificate_file" in files) != ("key_file" in files):
            raise tls.error("mutual TLS needs both certificate_file and key_file")
        access["tls"] = Tls(**{key: str(item.text()) for key, item in files.items()})
    return target, access


def _group(node: Node, top: Section) -> Group:
    plain = isinstance(node.value, str)
    section = Section(name=node) if plain else node.section(_GROUP_KEYS, required=("name",))
    names = tuple(_pattern(item) for item in section["name"].one_or_many())
    weights = _pattern(section["weights"]) if "weights" in section else None
    labels = {}
    for key, item in section["labels"].entries() if "labels" in section else ():
        if not key.isidentifier():
            raise item.error(f"found the label {key!r}, wanted letters, digits and underscores")
        labels[key] = item.label()
    for pattern in (*names, *([weights] if weights else [])):
        twice = set(pattern.labels) & set(labels)
        if twice:
            raise node.error(f"{twice.pop()} is a label here and a part of {pattern.text!r}")
    reference = section.get("reference") or top.get("reference")
    anchors = section.get("anchors") or top.get("anchors")
    if anchors is None:
        raise node.error("lacks anchors; write them here or at the top of the file")
    return Group(
        names=names,
        weights=weights,
        reference=None if reference is None else _reference(reference),
        labels=labels,
        anchors=read_anchors(anchors),
        node=node,
    )


def _pattern(node: Node) -> Pattern:
    try:
        return Pattern.of(node.text())
    except ValueError as error:
        raise node.error(f"found {node.value!r}: {error}") from error


def _reference(node: Node) -> CheckpointRef:
    if isinstance(node.value, str):
        return CheckpointRef(node.text())
    section = node.section(("name", "weights"), required=("name",))
    return CheckpointRef(section["name"].text(), section.read("weights", Node.text, ""))


def _seeds(node: Node) -> tuple[int, ...]:
    seeds = [item.integer(0, SEED_LIMIT) for item in node.one_or_many()]
    if len(set(seeds)) < len(seeds):
        raise node.found("every seed once")
    return tuple(seeds)


def _numeric_mode(node: Node) -> NumericMode:
    return NumericMode[node.choice([item.name.lower() for item in NumericMode]).upper()]


_PROTOCOL: dict[str, Callable[[Node], Any]] = {
    "draws": lambda node: node.integer(1),
    "horizon": lambda node: node.integer(1),
    "quantile": Node.fraction,
    "margin": Node.number,
    "weights": lambda node: tuple(item.number() for item in node.items()),
    "extra_horizons": lambda node: tuple(item.integer(1) for item in node.one_or_many()),
    "extra_quantiles": lambda node: tuple(item.fraction() for item in node.one_or_many()),
    "reading": lambda node: Reading[node.choice(READINGS).upper()],
    "partner_past": lambda node: PartnerPast[node.choice(("own", "anchor")).upper()],
    "neighbourhood": lambda node: node.one_or_many()[0].fraction(),
}
_NEAR = (ScoreProtocol().neighbourhood,)


def _protocol(node: Node) -> tuple[ScoreProtocol, tuple[float, ...]]:
    """Reads the protocol, and every neighbourhood for a control over them."""
    if isinstance(node.value, Mapping) and "seed" in node.value:
        raise node.error("seed is no part of it here; list the seeds under seeds")
    if isinstance(node.value, str):
        return ScoreProtocol(reading=_PROTOCOL["reading"](node)), _NEAR
    section = node.section(tuple(_PROTOCOL))
    protocol = ScoreProtocol(**{key: _PROTOCOL[key](item) for key, item in section.items()})
    return protocol, section.read("neighbourhood", _neighbourhoods, _NEAR)


def _neighbourhoods(node: Node) -> tuple[float, ...]:
    found = tuple(item.fraction() for item in node.one_or_many())
    if 0.0 in found or len(set(found)) < len(found):
        raise node.found("numbers above 0 and up to 1, every one once")
    return found


def _evidence(node: Node) -> tuple[EvidenceOptions, int | None]:
    """Reads the options, and the epochs over which a watch spends half of the error."""
    section = node.section(("confidence", "resamples", "seed", "population", "error_halflife"))
    halflife = section.pop("error_halflife", Node(ERROR_HALFLIFE))
    population = section.pop("population", None)
    given: dict[str, Any] = {
        key: item.number() if key == "confidence" else item.integer(0, SEED_LIMIT)
        for key, item in section.items()
    }
    if population is not None:
        given["population"] = Population[population.choice(POPULATIONS).upper()]
    options = EvidenceOptions(**given)
    try:
        check(options)
    except ArgumentError as error:
        raise section[error.field].error(error.description) from error
    return options, None if halflife.value is False else halflife.integer(1)


def _until_decided(node: Node) -> UntilDecided | None:
    """Reads the size of a batch, or true for the default one."""
    if node.value is False:
        return None
    return UntilDecided() if node.value is True else UntilDecided(node.integer(2))


def _thresholds(node: Node, beside: Path) -> tuple[Thresholds, tuple[str, ...]]:
    if not isinstance(node.value, str):
        section = node.section(("ir", "sr", *_OF_FILE))
        given: dict[str, Any] = {
            key: item.text() if key in _OF_FILE else item.number() for key, item in section.items()
        }
        return Thresholds(**given), ()
    try:
        chosen = load_thresholds(beside / node.value)
    except ArgumentError as error:
        raise node.error(error.description) from error
    return chosen.thresholds, tuple(f"{node.value}: {sentence}" for sentence in chosen.warnings)
