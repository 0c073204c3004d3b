"""Anchor sets on disk: immutable, named by the digest of their content.

    <root>/sets/<digest>/           set.json, anchors.npz, and a shard of frames in each other file
    <root>/uploads/<hash of id>/    header.json, the shards that have arrived, ``done`` at the end
    <root>/trash/                   folders being removed

Every file is written under another name and then renamed, and a finished upload's folder is renamed
into ``sets``, so that a set is either complete or absent, whichever process is killed.
"""

from acpc_server.data.anchor_sets.info import AnchorLimits, SetInfo, StoredSet, UploadHeader
from acpc_server.data.anchor_sets.shards import StoredAnchors
from acpc_server.data.anchor_sets.store import AnchorStore
from acpc_server.data.anchor_sets.uploads import AnchorUpload, store_drawn
