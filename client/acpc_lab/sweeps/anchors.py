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
        dry: Store nothing; a dataset that would be frozen stays as it is.
    """

    client: AcpcClient
    link: Link
    sweep: str
    folder: Path
    horizon: int
    reading: Reading = Reading.SERVER_DEFAULT
    dry: bool = False

    def store(self, anchors: AnchorPlace) -> CellAnchors:
        """Returns what to score on; the same anchors give the same set, however often.

        A set may be named by the beginning of its digest or by an alias, which the server resolves.
        """
        about, source, at = f"sweep {self.sweep}", anchors.drawn, self.client.anchors
        if anchors.upload:
            arrays = self._read(anchors)
            if self.dry:
                return digest_of(arrays)
            return self.link.ask(lambda: at.upload(arrays, description=about)).digest
        if source is None:
            return self.link.ask(lambda: at.get(anchors.set or "")).digest
        if self.dry or not anchors.freeze:
            return source
        request_id = self.request_id(anchors, source)
        return self.link.ask(
            lambda: at.create(
                source,
                history=anchors.history or HISTORY,
                horizon=self.horizon,
                description=about,
                reading=self.reading,
                request_id=request_id,
            )
        ).digest

    def groups(self, anchors: AnchorPlace) -> Collection[str]:
        """Returns the groups of views of a file or a stored set; a dataset has none."""
        if anchors.upload:
            return self._read(anchors).views
        digest = anchors.set
        return self.link.ask(lambda: self.client.anchors.get(digest)).groups if digest else ()

    def request_id(self, anchors: AnchorPlace, source: DatasetAnchors) -> str:
        """Returns the id of the job that makes a set; what the file leaves open is left out."""
        drawing = dataclasses.asdict(source)
        for name in ("window_future_frames", "sample", "episodes"):
            if not drawing[name]:
                del drawing[name]  # ids hold what the file names, no more
        content = [self.sweep, drawing, anchors.history or HISTORY, self.horizon]
        content += [str(self.reading)] if self.reading else []
        return str(uuid.uuid5(NAMESPACE, json.dumps(content)))

    def _read(self, anchors: AnchorPlace) -> AnchorArrays:
        try:
            return load_anchors(self.folder / str(anchors.upload), anchors.history)
        except ArgumentError as error:
            raise Wrong(error.violations[0].description) from error
