"""Makes the cells of a sweep from its file and the server's checkpoints."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from acpc.contract import MAX_RESAMPLES, nearest, shared
from acpc_client import AnchorSet, Checkpoint, CheckpointRef, DatasetAnchors, EvidenceOptions
from acpc_client.errors import ArgumentError

from acpc_lab.sweeps.folder import Cell, SweepPlan
from acpc_lab.sweeps.reading import Label, as_value, fill
from acpc_lab.sweeps.spec import CellAnchors, Group, SweepSpec

_DEFAULT_WEIGHTS = "weights.pt"
_MAX_NAMES = 8
_FEW_CELLS = 12  # whose p-values the default resamples show
_RESAMPLES = (8_000, 32_000)


class Planner:
    """Makes cells from a sweep file and the checkpoints at a server.

    ``find_set`` finds an anchor set there by its digest, its beginning or an alias.
    """

    def __init__(
        self,
        spec: SweepSpec,
        checkpoints: Iterable[Checkpoint],
        find_set: Callable[[str], AnchorSet],
    ) -> None:
        self.spec, self._find_set = spec, functools.cache(find_set)
        self._listing: dict[str, list[str]] = {}
        for item in checkpoints:
            self._listing.setdefault(item.name, []).append(item.weights)

    def plan(self) -> SweepPlan:
        """Makes every cell of a sweep.

        Raises SweepFileError: A name fits no checkpoint, or one checkpoint fits two items.
        """
        cells: list[Cell] = []
        owners: dict[CheckpointRef, str] = {}
        for group in self.spec.groups:
            with self._blaming(group):
                for ref, texts in self._members(group):
                    if ref in owners:
                        shown = f"{ref.name} ({ref.weights}) is already in {owners[ref]}"
                        raise ArgumentError("", f"{shown}; narrow one of them")
                    owners[ref] = group.place
                    cells += self._cells(group, ref, texts)
        spec = self.spec
        judged = sum(not cell.of_reference for cell in cells)
        sure = _resampled(spec.evidence, judged)
        cells = [dataclasses.replace(cell, evidence=sure) for cell in cells]
        return SweepPlan(spec.name, spec.description, spec.document, tuple(cells))

    def cells_of(self, checkpoint: CheckpointRef) -> tuple[Cell, ...]:
        """Makes the cells of one weights file, by the first item that means it; none where none is.

        Raises SweepFileError: Its reference is not at the server, or a label is missing.
        """
        meant = item_of(self.spec, checkpoint)
        if meant is None:
            return ()
        with self._blaming(meant[0]):
            return tuple(self._cells(meant[0], checkpoint, meant[1]))

    @contextlib.contextmanager
    def _blaming(self, group: Group) -> Iterator[None]:
        try:
            yield
        except ArgumentError as wrong:
            raise self.spec.source.error(wrong.field or group.place, wrong.description) from wrong

    def _cells(
        self, group: Group, checkpoint: CheckpointRef, texts: Mapping[str, str]
    ) -> Iterator[Cell]:
        spec = self.spec
        labels: dict[str, Label] = {**group.labels, **{k: as_value(v) for k, v in texts.items()}}
        fills = {**{key: str(value) for key, value in group.labels.items()}, **texts}
        same: dict[str, Any] = {
            **shared(spec, Cell),
            "reference": self._reference(group.reference, fills) if group.reference else None,
            "anchors": self._anchors(group, fills),
            "labels": labels,
        }
        for shift, seed, protocol in itertools.product(spec.shifts, spec.seeds, spec.protocols):
            seeded = dataclasses.replace(protocol, seed=seed)
            yield Cell(checkpoint=checkpoint, shift=shift, protocol=seeded, **same)

    def _anchors(self, group: Group, fills: Mapping[str, str]) -> CellAnchors:
        asked = group.anchors
        try:
            if not isinstance(asked, DatasetAnchors):
                return self._find_set(asked or "").digest
            names: Any = {name: fill(getattr(asked, name), fills) for name in ("dataset", "task")}
            return dataclasses.replace(asked, **names)
        except ArgumentError as wrong:
            at = "anchors" if asked is self.spec.anchors else f"{group.place}.anchors"
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
        return f", which has {likely(name, list(self._listing), _MAX_NAMES)}"


def likely(name: str, names: Sequence[str], most: int) -> str:
    """Lists the names most like one, or else the first, and how many others there are."""
    near = nearest(name, names, most, like=0.5) or names[:most]
    rest = len(names) - len(near)
    return f"{', '.join(near)}{f' and {rest} others' if rest > 0 else ''}"


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


def _resampled(asked: EvidenceOptions, judged: int) -> EvidenceOptions:
    """Returns the options with resamples that can show that each of so many cells is sure.

    The first of Holm's steps takes a p-value of the error over the number of cells; resamples have
    four beyond it. In few steps, so that a sweep that grows keeps the cells that it has.
    """
    if judged <= _FEW_CELLS:
        return asked
    wanted = 8 * judged / (1 - asked.confidence)
    enough = next((n for n in _RESAMPLES if n >= wanted), MAX_RESAMPLES)
    return dataclasses.replace(asked, resamples=max(enough, asked.resamples))
