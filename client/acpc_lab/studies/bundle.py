"""A study as a folder from which it can be checked and plotted again, without a GPU.

study.json      study, parameters, sources with their receipts, digest of every other file
rows.csv        every row
arrays.npz      where a study has more than rows
summary.json    every number of the summary
inputs/         the files the rows were made from
figures/        SVG and PNG
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from acpc.contract import Record
from acpc_client import read_npz
from acpc_client.errors import ArgumentError

from acpc_lab import plotting, tables
from acpc_lab.studies import (
    collapse,
    drift,
    geometry,
    horizons,
    planner,
    sensitivity,
    shifts,
    thresholds,
)
from acpc_lab.studies.base import Evidence, Study

_MODULES = (thresholds, shifts, drift, planner, geometry, sensitivity, horizons, collapse)
STUDIES: dict[str, Study] = {module.STUDY.name: module.STUDY for module in _MODULES}
"""The studies by name."""
FORMAT = "acpc-study-bundle/2"
MANIFEST = "study.json"
ROWS = "rows.csv"
SUMMARY = "summary.json"
ARRAYS = "arrays.npz"
FIGURES = "figures"
WRITTEN = ("parameters", "sources", "files", "figures")
"""What a manifest holds beside its format and the study's name."""


@dataclass(frozen=True)
class Bundle:
    """A folder with a study.

    Attributes:
        sources: What the rows were made from: files with digests, jobs with receipts.
        files: SHA-256 of every file that the summary depends on, by path in the folder.
        figures: SHA-256 of every figure, of a bundle of an earlier release; nothing rests on them.
    """

    folder: Path
    study: Study
    parameters: Mapping[str, Any]
    sources: Sequence[Mapping[str, Any]]
    files: Mapping[str, str]
    figures: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the study: of all but its figures, which can be drawn again."""
        document = {k: held for k, held in self.document().items() if k != "figures"}
        return tables.sha256(tables.to_json(document))

    def document(self) -> dict[str, Any]:
        """The manifest."""
        plain = {name: getattr(self, name) for name in WRITTEN}
        return {"format": FORMAT, "study": self.study.name, **plain}

    def evidence(self) -> Evidence:
        """The study, computed again from its rows.

        Raises ArgumentError: Rows, parameters or arrays cannot be read, or do not fit the study.
        """
        if ROWS not in self.files:
            raise ArgumentError(str(self.folder), f"{MANIFEST} names no {ROWS}")
        parameters = self.study.parameters.from_dict(self.parameters)
        arrays = read_npz(self.folder / ARRAYS) if ARRAYS in self.files else {}
        read = tables.read_rows(self.folder / ROWS, self.study.rows)
        return Evidence.of(self.study, read, parameters, arrays)


def write(
    folder: Path,
    evidence: Evidence,
    *,
    sources: Sequence[Mapping[str, Any]],
    inputs: Mapping[str, bytes] | None = None,
) -> Bundle:
    """Writes a bundle without figures; the manifest comes last, so that it is whole or no bundle.

    Raises ArgumentError: The folder holds a study already; OSError: The folder cannot be written.
    """
    require_free(folder)
    content: dict[str, bytes] = {f"inputs/{name}": data for name, data in (inputs or {}).items()}
    content[ROWS] = tables.to_csv(evidence.rows).encode()
    if evidence.arrays:
        content[ARRAYS] = tables.to_npz(evidence.arrays)
    content[SUMMARY] = tables.to_json(evidence.result(sources).to_dict())
    for name, data in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        tables.write_whole(path, data)
    bundle = Bundle(
        folder=folder,
        study=evidence.study,
        parameters=evidence.parameters.to_dict(),
        sources=[*sources, {"kind": "computed", "acpc": metadata.version("acpc")}],
        files={name: tables.sha256(data) for name, data in sorted(content.items())},
    )
    tables.write_whole(folder / MANIFEST, tables.to_json(bundle.document()))
    return bundle


def require_free(folder: Path) -> None:
    """Rejects a folder that holds a study. Raises ArgumentError: It does."""
    if (folder / MANIFEST).exists():
        raise ArgumentError(str(folder), "holds a study already; name another folder")


def read(folder: Path) -> Bundle:
    """The bundle in a folder; nothing but its manifest is looked at.

    Raises ArgumentError: There is none, or its manifest cannot be read.
    """
    path = folder / MANIFEST
    try:
        document = json.loads(path.read_bytes())
        wanted = {"format", "study", *WRITTEN}
        if not isinstance(document, dict) or document.keys() != wanted:
            raise ValueError(f"found the keys {list(document)}, wanted {sorted(wanted)}")
        if document["format"] != FORMAT:
            raise ValueError(f"found format {document['format']!r}, wanted {FORMAT!r}")
        if document["study"] not in STUDIES:
            raise ValueError(f"unknown study {document['study']!r}")
        for name in (*document["files"], *document["figures"]):
            inside = PurePosixPath(name)
            if inside.is_absolute() or ".." in inside.parts or "\\" in name or not inside.parts:
                raise ValueError(f"{name!r} is no file below the folder")
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ArgumentError(str(path), f"is no manifest of a study: {error}") from error
    return Bundle(folder, STUDIES[document["study"]], **{k: document[k] for k in WRITTEN})


def draw(held: Bundle, evidence: Evidence) -> list[Path]:
    """Draws the figures of a study into its folder; returns their files.

    Raises FailedPrecondition: matplotlib is not installed; OSError: The folder cannot be written.
    """
    folder = held.folder / FIGURES
    folder.mkdir(exist_ok=True)
    paths: list[Path] = []
    shifts = _shifts(held.sources)
    with plotting.styled():
        for name, figure in evidence.figures().items():
            if shifts:
                below = "\n".join(filter(None, (shifts, figure.get_supxlabel())))
                figure.supxlabel(below, fontsize=6.5, color=plotting.SOFT)
            paths += plotting.write(figure, folder, name)
    return sorted(paths)


def _shifts(sources: Sequence[Mapping[str, Any]]) -> str:
    """The shifts that the jobs measured, by kind with their parameters; empty without jobs."""
    kinds: dict[str, dict[str, None]] = {}
    for request in (source["request"] for source in sources if "request" in source):
        for shift in (*request.get("study", {}).get("shifts", ()), request.get("shift")):
            if shift:
                values = (f"{name} {value}" for name, value in shift.items() if name != "kind")
                kinds.setdefault(shift["kind"], {})[", ".join(values)] = None
    named = {kind: ", ".join(filter(None, found)) for kind, found in kinds.items()}
    return "; ".join(f"under {kind}{f': {found}' * bool(found)}" for kind, found in named.items())


TOLERANCE = 1e-9
"""Relative difference that another machine's linear algebra may make."""
NOTHING = 1e-12
"""Absolute difference that counts as none, for numbers that are zero but for rounding."""


class Verification(Record):
    """The first thing that is not as it should be, and the largest relative difference."""

    study: str
    digest: str
    files: int
    values: int
    largest_difference: float
    difference: str | None


def verify(folder: Path) -> Verification:
    """Compares every file with its digest and every number with one computed from the rows.

    Raises ArgumentError: The folder holds no bundle.
    """
    held = read(folder)
    values, largest = 0, 0.0
    try:
        values, largest, difference = _compared(held)
    except ArgumentError as error:
        difference = f"the summary cannot be computed from the rows: {error.message}"
    return Verification(held.study.name, held.digest, len(held.files), values, largest, difference)


def _compared(held: Bundle) -> tuple[int, float, str | None]:
    """Values compared, the largest relative difference, and the first that is too large."""
    for name, wanted in held.files.items():
        path = held.folder / name
        if not path.is_file():
            return 0, 0.0, f"{name} is missing"
        if (digest := tables.sha256(path.read_bytes())) != wanted:
            return 0, 0.0, f"{name} has the SHA-256 {digest}, where {MANIFEST} has {wanted}"
    if SUMMARY not in held.files:
        return 0, 0.0, f"{MANIFEST} names no {SUMMARY}"
    try:
        written = json.loads((held.folder / SUMMARY).read_bytes())
    except (ValueError, RecursionError) as error:
        return 0, 0.0, f"{SUMMARY} is not JSON: {error}"
    computed = held.evidence().result(held.sources[:-1]).to_dict()  # the last one is this release
    found = tables.compared(
        dict(tables.leaves(written)), dict(tables.leaves(computed)), TOLERANCE, NOTHING
    )
    return found.values, found.largest, found.first and f"{SUMMARY}, {found.first}"
