"""The client; ``client/unasync.py`` makes the blocking one of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

if TYPE_CHECKING:
    from acpc_client.aio.anchors import AsyncAnchors
    from acpc_client.aio.client import AsyncAcpcClient
    from acpc_client.aio.resources import (
        AsyncCheckpoints,
        AsyncDatasets,
        AsyncOperations,
        AsyncScoreJob,
        AsyncStudyJob,
    )
    from acpc_client.aio.session import AsyncPlanSession
else:
    __getattr__, __dir__ = lazy_face(__name__)
