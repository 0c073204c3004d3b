"""The audit log: a line for every call that changes something, whatever its end."""

from __future__ import annotations

from google.protobuf.message import Message

AUDITED = frozenset(
    {
        "/acpc.v1.AnchorService/UploadAnchors",
        "/acpc.v1.AnchorService/CreateAnchorSet",
        "/acpc.v1.AnchorService/DeleteAnchorSet",
        "/acpc.v1.CheckpointService/LoadCheckpoint",
        "/acpc.v1.CheckpointService/UnloadCheckpoint",
        "/acpc.v1.ScoringService/ScoreCheckpoint",
        "/acpc.v1.StudyService/RunStudy",
        "/google.longrunning.Operations/CancelOperation",
        "/google.longrunning.Operations/DeleteOperation",
    }
)
"""Methods that change something, by full name."""
MAX_TEXT = 200
# Where requests and answers name what they are about: the field of the line, and the path.
_PATHS = (
    ("operation", "name"),
    ("anchor_set", "digest"),
    ("anchor_set", "anchor_set"),
    ("anchor_set", "anchor_set.digest"),
    ("checkpoint", "checkpoint.name"),
    ("checkpoint_digest", "checkpoint.digest"),
)


def subject(message: Message) -> dict[str, str]:
    """What an audited request or answer is about: operation, anchor set, checkpoint."""
    found = {}
    for field, path in _PATHS:
        value: object = message
        for part in path.split("."):
            value = getattr(value, part, None)
        if isinstance(value, str) and value:
            found[field] = value[:MAX_TEXT]
    return found
