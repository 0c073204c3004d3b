"""How much the store of anchor sets takes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AnchorLimits:
    """Quotas and retention.

    Attributes:
        store_bytes: Bytes of all sets and uploads.
        set_bytes: Bytes of one set on disk.
        set_anchors: Anchors of one set.
        uploads: Uploads that this process takes at a time.
        keep_seconds: A set goes this long after it was last used; 0 keeps it for ever.
        upload_seconds: An upload that has not moved for this long is abandoned.
    """

    store_bytes: int
    set_bytes: int
    set_anchors: int
    uploads: int
    keep_seconds: float
    upload_seconds: float
