"""Uploads of anchor sets."""

from acpc_client.uploads.upload import OnUpload, Upload, UploadOptions
