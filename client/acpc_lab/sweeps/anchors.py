"""Brings the anchors of a sweep to the server, once."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from acpc_client import AcpcClient, AnchorArrays, DatasetAnchors, ScoreProtocol, digest_of
from acpc_client.errors import ArgumentError

from acpc_lab.campaigns import Link
from acpc_lab.sweeps.cells import NAMESPACE
from acpc_lab.sweeps.reading import Wrong
from acpc_lab.tables import HISTORY, load_anchors

if TYPE_CHECKING:
    from acpc_lab.sweeps.spec import AnchorPlace, SweepSpec

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
            raise Wrong(error.violations[0].description) from error
