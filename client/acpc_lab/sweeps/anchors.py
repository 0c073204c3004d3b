"""Brings the anchors of a sweep to the server, once."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from acpc_client import AcpcClient, AnchorArrays, DatasetAnchors, Reading, digest_of
from acpc_client.errors import ArgumentError

from acpc_lab.campaigns import Link
from acpc_lab.sweeps.cells import NAMESPACE
from acpc_lab.sweeps.reading import Wrong
from acpc_lab.tables import HISTORY, load_anchors

if TYPE_CHECKING:
    from acpc_lab.sweeps.parts import AnchorPlace

# What a cell is scored on.
CellAnchors = DatasetAnchors | str
Store = Callable[["AnchorPlace"], CellAnchors]


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
        about, source = f"sweep {self.sweep}", anchors.drawn
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
    return anchors.drawn or client.anchors.get(anchors.set or "").digest


def groups_of(anchors: AnchorPlace, folder: Path, client: AcpcClient) -> Collection[str]:
    """Returns the groups of views of a file or a stored set; a dataset has none."""
    if anchors.upload:
        return read_file(anchors, folder).views
    return client.anchors.get(anchors.set).groups if anchors.set else ()


def read_file(anchors: AnchorPlace, folder: Path) -> AnchorArrays:
    """Reads the anchors of the file that ``upload`` names."""
    try:
        return load_anchors(folder / str(anchors.upload), anchors.history)
    except ArgumentError as error:
        raise Wrong(error.violations[0].description) from error
