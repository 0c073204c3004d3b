"""The client; ``client/unasync.py`` makes the blocking one of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

NAMES = {
    "anchors": "AsyncAnchors",
    "client": "AsyncAcpcClient",
    "resources": "AsyncCheckpoints AsyncDatasets AsyncOperations AsyncScoreJob AsyncStudyJob",
    "session": "AsyncPlanSession",
}
if TYPE_CHECKING:
    from acpc_client.aio.anchors import *
    from acpc_client.aio.client import *
    from acpc_client.aio.resources import *
    from acpc_client.aio.session import *
else:
    __getattr__, __dir__ = lazy_face(__name__, NAMES)
