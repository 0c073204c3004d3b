"""Making a set from anchors that were drawn from a dataset."""

import zlib
from collections.abc import Callable

from acpc_server.data.anchor_sets.info import SetInfo
from acpc_server.data.anchor_sets.uploads import AnchorUpload
from acpc_server.data.drawn import DrawnAnchors

# Fast: frames of simulators shrink a lot at any level.
ZLIB_LEVEL = 1


def store_drawn(upload: AnchorUpload, drawn: DrawnAnchors, check: Callable[[], None]) -> SetInfo:
    """Fills an upload from a dataset, a few anchors in memory at a time.

    Shards of an earlier attempt are dropped, for the dataset may have been replaced since.

    Args:
        upload: An upload whose header fits the anchors.
        drawn: The anchors.
        check: Called between shards; raises when the set is no longer wanted.

    Raises:
        FailedPrecondition: The dataset's frames are damaged.
        ResourceExhausted: Over a quota.
    """
    upload.restart()
    for start, stop in drawn.cuts():
        if upload.finished is not None:
            break
        check()
        shard = drawn.batch(start, stop)
        packed = zlib.compress(shard.frames.data, ZLIB_LEVEL)
        upload.append(shard, packed if len(packed) < shard.frames.nbytes else None)
    return upload.finish()
