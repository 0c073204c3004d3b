"""The store's data: its limits, the header of an upload, and the ``set.json`` of a set."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from acpc import contract
from acpc.contract import AnchorArray, AnchorSource, from_json

from acpc_server.errors import FailedPrecondition

INFO = "set.json"


@dataclass(frozen=True)
class AnchorLimits:
    """Quotas and retention of the store; all bytes are those on disk."""

    store_bytes: int
    set_anchors: int
    keep_seconds: float  # of a set after its last use; 0: without limit
    upload_seconds: float  # of an upload after its last shard


class UploadHeader(contract.UploadHeader):
    """Header of an upload; ``source`` is set when the server draws the set from a dataset.

    ``owner`` is who uploads it; empty on a server without authentication.
    """

    source: AnchorSource | None = field(default=None, metadata={"wire": None})
    owner: str = field(default="", metadata={"wire": None})


@dataclass(frozen=True)
class SetInfo:
    """A stored set, as ``contract.AnchorSet``, but with ``create_time`` in seconds since 1970.

    ``owner`` is who uploaded it first; ``windows`` are those of the dataset it was drawn from.
    """

    digest: str
    anchors: int
    history: int
    horizon: int
    height: int
    width: int
    action_block_dim: int
    state_dim: int
    size_bytes: int
    create_time: float
    description: str
    source: AnchorSource | None
    endpoints_digest: str = ""
    extras: tuple[AnchorArray, ...] = ()
    owner: str = ""
    windows: int | None = None


@dataclass(frozen=True)
class StoredSet:
    """A stored set and when it was last used, in seconds since 1970."""

    info: SetInfo
    used_time: float


def read_stored(folder: Path) -> StoredSet | None:
    """Read the set in a folder, None when there is none; FailedPrecondition when damaged."""
    path = folder / INFO
    try:
        info, used_time = path.read_bytes(), path.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        stored = StoredSet(info=from_json(SetInfo, info), used_time=used_time)
        if stored.info.digest != folder.name:
            raise ValueError("it names another set")
        return stored
    except ValueError as error:
        raise FailedPrecondition(
            f"{INFO} of anchor set {folder.name} is damaged, or of another release; delete the set "
            "and upload it again",
            reason="ANCHOR_SET_DAMAGED",
        ) from error


def mark_used(folder: Path) -> bool:
    """Set the time of a ``set.json``: the set is in use now. False when there is none."""
    try:
        os.utime(folder / INFO)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
