"""Reads where the anchors of a sweep come from, and brings them to the server once."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acpc_client import AcpcClient, AnchorArrays, DatasetAnchors, Reading, digest_of
from acpc_client.errors import ArgumentError

from acpc_lab.campaigns import Link
from acpc_lab.sweeps.cells import NAMESPACE
from acpc_lab.sweeps.reading import Node
from acpc_lab.tables import HISTORY, load_anchors

SEED_LIMIT = 2**63 - 1
# What a cell is scored on.
CellAnchors = DatasetAnchors | str
Store = Callable[["AnchorPlace"], CellAnchors]
_DRAWN = (
    "dataset", "task", "count", "seed", "frameskip", "one_per_episode",
    "window_future_frames", "freeze", "history",
)  # fmt: skip


@dataclass(frozen=True)
class AnchorPlace:
    """What a sweep file says about anchors. Dataset, task and upload may have ``{label}`` parts.

    Attributes:
        upload: A file, or a folder, of anchors of the caller's own.
        freeze: Make an anchor set of the dataset first, and score on that.
        history: Frames of history in a set that is made; None: what the file says, or 3.
    """

    node: Node = field(compare=False)
    dataset: DatasetAnchors | None = None
    digest: str = ""
    upload: str = ""
    freeze: bool = False
    history: int | None = None

    def filled(self, fill: Callable[[str], str]) -> AnchorPlace:
        """Returns the same with ``fill`` applied to whatever may have labels."""
        dataset = self.dataset
        if dataset is not None:
            dataset = dataclasses.replace(
                dataset, dataset=fill(dataset.dataset), task=fill(dataset.task)
            )
        return dataclasses.replace(self, dataset=dataset, upload=fill(self.upload))


def read_anchors(node: Node) -> AnchorPlace:
    """Reads the key ``anchors``. Raises SweepFileError: It cannot be used as it is."""
    section = node.section((*_DRAWN, "set", "upload"))
    for alone, others in (("set", ()), ("upload", ("history",))):
        surplus = [key for key in section if key not in (alone, *others)]
        if alone in section and surplus:
            raise node.error(f"{alone} names finished anchors; leave out {', '.join(surplus)}")
    history = section.read("history", lambda node: node.integer(1), None)
    if "set" in section:
        return AnchorPlace(node, digest=section["set"].text())
    if "upload" in section:
        return AnchorPlace(node, upload=section["upload"].text(), history=history)
    for key in ("dataset", "task"):
        if key not in section:
            raise node.error(f"lacks the key {key}; or name finished anchors with set or upload")
    given: dict[str, Any] = {}
    for key, least in (("count", 2), ("seed", 0), ("frameskip", 1), ("window_future_frames", 1)):
        if key in section:
            given[key] = section[key].integer(least, SEED_LIMIT if key == "seed" else 2**32 - 1)
    if "one_per_episode" in section:
        given["one_per_episode"] = section["one_per_episode"].flag()
    freeze = section.read("freeze", Node.flag, False)
    if history is not None and not freeze:
        raise section["history"].error("is for an anchor set; add freeze: true, or leave it out")
    dataset = DatasetAnchors(section["dataset"].text(), section["task"].text(), **given)
    return AnchorPlace(node, dataset, freeze=freeze, history=history)


@dataclass(frozen=True)
class Depot:
    """Gets anchors to a server.

    Attributes:
        folder: Files to upload are named relative to it.
        horizon: Future frames in a set that is made.
        reading: Decides the windows of a set that is made, where the file leaves them open.
    """

    client: AcpcClient
    link: Link
    sweep: str
    folder: Path
    horizon: int
    reading: Reading = Reading.SERVER_DEFAULT

    def store(self, anchors: AnchorPlace) -> CellAnchors:
        """Returns what to score on; the same anchors give the same set, however often."""
        about, source = f"sweep {self.sweep}", anchors.dataset
        if anchors.upload:
            arrays, upload = read_file(anchors, self.folder), self.client.anchors.upload
            return self.link.ask(lambda: upload(arrays, description=about)).digest
        if source is None:
            return self.link.ask(lambda: named(anchors, self.folder, self.client))
        if not anchors.freeze:
            return source
        create, request_id = self.client.anchors.create, self.request_id(anchors, source)
        return self.link.ask(
            lambda: create(
                source,
                history=anchors.history or HISTORY,
                horizon=self.horizon,
                description=about,
                reading=self.reading,
                request_id=request_id,
            )
        ).digest

    def groups(self, anchors: AnchorPlace) -> Collection[str]:
        """Returns the groups of views that the anchors have."""
        return self.link.ask(lambda: groups_of(anchors, self.folder, self.client))

    def request_id(self, anchors: AnchorPlace, source: DatasetAnchors) -> str:
        """Returns the id of the job that makes a set; what the file leaves open is left out."""
        drawing = dataclasses.asdict(source)
        for name in ("window_future_frames", "sample"):
            if not drawing[name]:
                del drawing[name]  # ids hold what the file names, no more
        content = [self.sweep, drawing, anchors.history or HISTORY, self.horizon]
        content += [str(self.reading)] if self.reading else []
        return str(uuid.uuid5(NAMESPACE, json.dumps(content)))


def named(anchors: AnchorPlace, folder: Path, client: AcpcClient) -> CellAnchors:
    """Returns what ``Depot.store`` would, storing nothing; of a frozen dataset, the dataset.

    A set may be named by the beginning of its digest or by an alias, which the server resolves.
    """
    if anchors.upload:
        return digest_of(read_file(anchors, folder))
    return anchors.dataset or client.anchors.get(anchors.digest).digest


def groups_of(anchors: AnchorPlace, folder: Path, client: AcpcClient) -> Collection[str]:
    """Returns the groups of views of a file or a stored set; a dataset has none."""
    if anchors.upload:
        return read_file(anchors, folder).views
    return client.anchors.get(anchors.digest).groups if anchors.digest else ()


def read_file(anchors: AnchorPlace, folder: Path) -> AnchorArrays:
    """Reads the anchors of the file that ``upload`` names."""
    try:
        return load_anchors(folder / anchors.upload, anchors.history)
    except ArgumentError as error:
        raise anchors.node.error(error.violations[0].description) from error
