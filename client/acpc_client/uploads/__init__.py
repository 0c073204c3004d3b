"""Uploads of anchor sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

if TYPE_CHECKING:
    from acpc_client.uploads.upload import OnUpload, Upload, UploadOptions
else:
    __getattr__, __dir__ = lazy_face(__name__)
