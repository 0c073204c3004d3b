"""The store's data: its limits, the header of an upload, and the ``set.json`` of a set."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from acpc import contract
from acpc.contract import AnchorArray, AnchorSource, from_json

from acpc_server.errors import FailedPrecondition, InvalidArgument

INFO = "set.json"
DIGEST = re.compile(r"[0-9a-f]{64}")


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

    def check_rules(self) -> None:
        """What is expected is a digest: it names a folder."""
        if (wrong := self.expected_digest) and not DIGEST.fullmatch(wrong):
            found = f"is {wrong[:80]!r}; give 64 hexadecimal digits, lower case"
            raise InvalidArgument("expected_digest", found)


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


def read_stored(folder: Path, *, use: bool = False) -> StoredSet | None:
    """Read the set in a folder, in ``use`` from now on; None when there is none.

    FailedPrecondition: It is damaged.
    """
    path = folder / INFO
    try:
        if use:
            os.utime(path)
        info, used_time = path.read_bytes(), path.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        stored = StoredSet(from_json(SetInfo, info), used_time)
        if stored.info.digest != folder.name:
            raise ValueError("it names another set")
        return stored
    except ValueError as error:
        raise FailedPrecondition(
            f"{INFO} of anchor set {folder.name} is damaged, or of another release; delete the set "
            "and upload it again",
            reason="ANCHOR_SET_DAMAGED",
        ) from error
