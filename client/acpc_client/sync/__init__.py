"""The blocking client: wire.py, streams.py and listing.py by hand, the rest generated from aio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

if TYPE_CHECKING:
    from acpc_client.sync.anchors import Anchors
    from acpc_client.sync.client import AcpcClient
    from acpc_client.sync.resources import Checkpoints, Datasets, Operations, ScoreJob, StudyJob
    from acpc_client.sync.session import PlanSession
else:
    __getattr__, __dir__ = lazy_face(__name__)
