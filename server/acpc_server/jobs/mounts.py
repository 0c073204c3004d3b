"""Tells whether a path lies on a network file system, on which SQLite's log does not hold.

In WAL mode processes share memory by the file, and lock it; over a network neither is sure.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = re.compile(
    r"nfs4?|cifs|smb\w*|ncpfs|afs|coda|davfs|ceph"
    r"|fuse\.(sshfs|rclone|juicefs|gcsfuse|goofys|davfs\d?|curlftpfs|nfs.*"
    r"|.*(gluster|ceph|s3|blobfuse|smb|hdfs|weed).*)"
)


def network_mount(path: str, mounts: str) -> str:
    """Type and source of the network file system that a path lies on; empty: on none.

    ``path`` is absolute, without links; ``mounts`` is the text of ``/proc/self/mountinfo``.
    """
    deepest, kind, source = "", "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, told = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(told) < 2:
            continue
        place = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), fields[4])
        # What is mounted over another thing comes after it.
        if len(place) >= len(deepest) and os.path.commonpath([place, path]) == place:
            deepest, kind, source = place, told[0], told[1]
    return f"{kind}, {source}" if _NETWORK.fullmatch(kind) else ""


def network_file_system(file: Path) -> str:
    """What :func:`network_mount` says of a file that need not be there yet."""
    try:
        return network_mount(os.path.realpath(file), MOUNTS.read_text(errors="replace"))
    except OSError:  # no Linux
        return ""
