"""Makes the cells of a sweep from its file and the server's checkpoints."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from acpc.contract import MAX_RESAMPLES, nearest
from acpc_client import (
    AcpcClient,
    AnchorArrays,
    Checkpoint,
    CheckpointRef,
    DatasetAnchors,
    ScoreProtocol,
    digest_of,
)
from acpc_client.errors import ArgumentError

from acpc_lab.campaigns import Link
from acpc_lab.sweeps.cells import NAMESPACE, Cell
from acpc_lab.sweeps.folder import SweepPlan
from acpc_lab.sweeps.reading import Label, as_value, fill
from acpc_lab.sweeps.shifts import Groups
from acpc_lab.tables import HISTORY, load_anchors

if TYPE_CHECKING:
    from acpc_lab.sweeps.spec import AnchorPlace, Group, SweepSpec

_DEFAULT_WEIGHTS = "weights.pt"
_MAX_NAMES = 8
_FEW_CELLS = 12  # whose p-values the default resamples show
_RESAMPLES = (8_000, 32_000)
# What a cell is scored on.
CellAnchors = DatasetAnchors | str


class Depot:
    """Gets the anchors of a sweep to a server.

    Args:
        spec: The sweep file, whose protocol says how many frames a set that is made has.
        client: The server.
        link: Outlasts its absence.
        beside: The folder of files to upload.
        dry: Store nothing; a dataset that would be frozen stays as it is.
    """

    def __init__(
        self, spec: SweepSpec, client: AcpcClient, link: Link, beside: Path, *, dry: bool = False
    ) -> None:
        protocol = spec.protocols[0]  # the others differ by the neighbourhood
        self._sweep, self._client, self._link = spec.name, client, link
        self._beside, self._dry, self._reading = beside, dry, protocol.reading
        self._horizon = max(
            protocol.horizon or ScoreProtocol().horizon, *protocol.extra_horizons, 1
        )

    def store(self, anchors: AnchorPlace) -> CellAnchors:
        """Returns what to score on; the same anchors give the same set, however often.

        A set may be named by the beginning of its digest or by an alias, which the server resolves.
        """
        about, source, at = f"sweep {self._sweep}", anchors.drawn, self._client.anchors
        if anchors.upload:
            arrays = self._read(anchors)
            if self._dry:
                return digest_of(arrays)
            return self._link.ask(lambda: at.upload(arrays, description=about)).digest
        if source is None:
            return self._link.ask(lambda: at.get(anchors.set or "")).digest
        if self._dry or not anchors.freeze:
            return source
        request_id = self.request_id(anchors, source)
        return self._link.ask(
            lambda: at.create(
                source,
                history=anchors.history or HISTORY,
                horizon=self._horizon,
                description=about,
                reading=self._reading,
                request_id=request_id,
            )
        ).digest

    def groups(self, anchors: AnchorPlace) -> Collection[str]:
        """Returns the groups of views of a file or a stored set; a dataset has none."""
        if anchors.upload:
            return self._read(anchors).views
        digest = anchors.set
        return self._link.ask(lambda: self._client.anchors.get(digest)).groups if digest else ()

    def request_id(self, anchors: AnchorPlace, source: DatasetAnchors) -> str:
        """Returns the id of the job that makes a set; what the file leaves open is left out."""
        drawing = dataclasses.asdict(source)
        for name in ("window_future_frames", "sample", "episodes"):
            if not drawing[name]:
                del drawing[name]  # ids hold what the file names, no more
        content = [self._sweep, drawing, anchors.history or HISTORY, self._horizon]
        content += [str(self._reading)] if self._reading else []
        return str(uuid.uuid5(NAMESPACE, json.dumps(content)))

    def _read(self, anchors: AnchorPlace) -> AnchorArrays:
        try:
            return load_anchors(self._beside / str(anchors.upload), anchors.history)
        except ArgumentError as error:
            raise ArgumentError("", error.description) from error


class Planner:
    """Makes cells from a sweep file and the checkpoints at a server.

    Args:
        spec: The sweep file.
        depot: Brings anchors to the server, each place of them once.
    """

    def __init__(self, spec: SweepSpec, depot: Depot) -> None:
        self.spec, self._depot = spec, depot
        self._store = functools.cache(depot.store)
        self._listing: dict[str, list[str]] = {}

    def plan(self, checkpoints: Iterable[Checkpoint]) -> SweepPlan:
        """Makes every cell of a sweep, of those that a server lists.

        Raises SweepFileError: A name fits no checkpoint, or one checkpoint fits two items.
        """
        self._list(checkpoints)
        cells: list[Cell] = []
        owners: dict[CheckpointRef, str] = {}
        for group in self.spec.groups:
            with self._blaming(group):
                for ref, texts in self._members(group):
                    if ref in owners:
                        shown = f"{ref.name} ({ref.weights})"
                        raise ArgumentError(
                            "", f"{shown} is already in {owners[ref]}; narrow one of them"
                        )
                    owners[ref] = group.place
                    cells += self._cells(group, ref, texts)
        spec = self.spec
        return SweepPlan(spec.name, spec.description, spec.document, tuple(_resampled(cells)))

    def cells_of(
        self, checkpoint: CheckpointRef, checkpoints: Iterable[Checkpoint]
    ) -> tuple[Cell, ...]:
        """Makes the cells of one weights file, by the first item that means it; none where none is.

        Raises SweepFileError: Its reference is not at the server, or a label is missing.
        """
        self._list(checkpoints)
        meant = item_of(self.spec, checkpoint)
        if meant is None:
            return ()
        with self._blaming(meant[0]):
            return tuple(self._cells(meant[0], checkpoint, meant[1]))

    def _list(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Notes the weights files of each checkpoint."""
        self._listing = {}
        for item in checkpoints:
            self._listing.setdefault(item.name, []).append(item.weights)

    @contextlib.contextmanager
    def _blaming(self, group: Group) -> Iterator[None]:
        try:
            yield
        except ArgumentError as wrong:
            raise self.spec.error(wrong.field or group.place, wrong.description) from wrong

    def _cells(
        self, group: Group, checkpoint: CheckpointRef, texts: Mapping[str, str]
    ) -> Iterator[Cell]:
        spec = self.spec
        labels: dict[str, Label] = {**group.labels, **{k: as_value(v) for k, v in texts.items()}}
        fills = {**{key: str(value) for key, value in group.labels.items()}, **texts}
        reference = self._reference(group.reference, fills) if group.reference else None
        place, anchors = self._anchors(group, fills)
        found = [x.among(self._depot.groups(place)) if isinstance(x, Groups) else [x]
                 for x in spec.shifts]  # fmt: skip
        shifts = {x.digest: x for x in itertools.chain.from_iterable(found)}.values()
        for shift, seed, protocol in itertools.product(shifts, spec.seeds, spec.protocols):
            yield Cell(
                checkpoint=checkpoint,
                reference=reference,
                anchors=anchors,
                shift=shift,
                protocol=dataclasses.replace(protocol, seed=seed),
                thresholds=spec.thresholds,
                numeric_mode=spec.numeric_mode,
                evidence=spec.evidence,
                until_decided=spec.until_decided,
                labels=labels,
            )

    def _anchors(self, group: Group, fills: Mapping[str, str]) -> tuple[AnchorPlace, CellAnchors]:
        """Returns where the anchors of a group come from, and what to score on."""
        if group.anchors is None:
            raise ArgumentError("", "lacks anchors")
        try:
            place = group.anchors.filled(fills)
            return place, self._store(place)
        except ArgumentError as wrong:
            shared = group.anchors is self.spec.anchors
            at = "anchors" if shared else f"{group.place}.anchors"
            words = f"{wrong.field}: {wrong.description}".removeprefix(": ")
            raise ArgumentError(at, words) from wrong

    def _members(self, group: Group) -> Iterator[tuple[CheckpointRef, dict[str, str]]]:
        """Yields the checkpoints of a group with the labels of its patterns, as they are listed."""
        seen = set()
        for pattern in group.names:
            found = False
            for name, files in self._listing.items():
                if pattern.match(name) is None:
                    continue
                for weights in files if group.weights else [_default_weights(files, name)]:
                    ref = CheckpointRef(name, weights)
                    texts = group.texts(pattern, ref)
                    found |= texts is not None
                    if texts is not None and ref not in seen:
                        seen.add(ref)
                        yield ref, texts
            if not found:
                beside = f" with weights {group.weights.text!r}" if group.weights else ""
                near = self._near(pattern.text)
                raise ArgumentError(
                    "", f"{pattern.text!r}{beside} fits no checkpoint at the server{near}"
                )

    def _reference(self, named: CheckpointRef, fills: Mapping[str, str]) -> CheckpointRef:
        name, weights = fill(named.name, fills), fill(named.weights, fills)
        files = self._listing.get(name)
        if files is None:
            raise ArgumentError("", f"its reference {name} is not at the server{self._near(name)}")
        if not weights:
            return CheckpointRef(name, _default_weights(files, f"the reference {name}"))
        if weights not in files:
            has = ", ".join(files[:_MAX_NAMES])
            raise ArgumentError(
                "", f"its reference {name} has no weights file {weights}; it has {has}"
            )
        return CheckpointRef(name, weights)

    def _near(self, name: str) -> str:
        if not self._listing:
            return ", which has none at all; see its --checkpoint-root"
        near = (
            nearest(name, self._listing, _MAX_NAMES, like=0.5) or list(self._listing)[:_MAX_NAMES]
        )
        rest = len(self._listing) - len(near)
        return f", which has {', '.join(near)}{f' and {rest} others' if rest > 0 else ''}"


def item_of(spec: SweepSpec, checkpoint: CheckpointRef) -> tuple[Group, dict[str, str]] | None:
    """Returns the first item of the file that means this weights file, with its labels."""
    for group in spec.groups:
        for pattern in group.names:
            texts = group.texts(pattern, checkpoint)
            if texts is not None:
                return group, texts
    return None


def _default_weights(files: Sequence[str], name: str) -> str:
    if _DEFAULT_WEIGHTS in files:
        return _DEFAULT_WEIGHTS
    if len(files) > 1:
        raise ArgumentError(
            "",
            f"{name} has {len(files)} weights files ({', '.join(files[:_MAX_NAMES])}); say which "
            "with weights, for example weights: weights_epoch_{epoch}.pt",
        )
    return files[0]


def _resampled(cells: Sequence[Cell]) -> list[Cell]:
    """Returns cells whose resamples can show that each is sure among all of them.

    The first of Holm's steps takes a p-value of the error over the number of cells; resamples have
    four beyond it. In few steps, so that a sweep that grows keeps the cells that it has.
    """
    judged = sum(not cell.of_reference for cell in cells)

    def enough(cell: Cell) -> Cell:
        error = 1 - cell.evidence.confidence
        wanted = [n for n in _RESAMPLES if n >= 8 * judged / error] or [MAX_RESAMPLES]
        if wanted[0] <= cell.evidence.resamples:
            return cell
        return dataclasses.replace(
            cell, evidence=dataclasses.replace(cell.evidence, resamples=wanted[0])
        )

    return [enough(cell) for cell in cells] if judged > _FEW_CELLS else list(cells)
