"""Anchor sets on disk: immutable, named by the digest of their content.

    <root>/sets/<digest>/           set.json, anchors.npz, and a shard of frames in each other file
    <root>/uploads/<hash of id>/    header.json, the shards that have arrived, ``done`` at the end
    <root>/trash/                   folders being removed

Every file is written beside its place and renamed into it, and a finished upload's folder is
renamed into ``sets``, so that a set is there whole or not at all, whoever is killed.
"""

from acpc_server.data.anchor_sets.info import AnchorLimits, SetInfo, StoredSet, UploadHeader
from acpc_server.data.anchor_sets.store import AnchorStore, check_digest
from acpc_server.data.anchor_sets.stored import StoredAnchors
from acpc_server.data.anchor_sets.uploads import AnchorUpload, store_drawn
