"""The ACPC diagnostic server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

if TYPE_CHECKING:
    from acpc_server.importing.writing import save_checkpoint
else:
    __getattr__, __dir__ = lazy_face(__name__, {"acpc_server.importing.writing": "save_checkpoint"})
