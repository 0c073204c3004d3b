"""Checkpoint jobs: IR, SR and the verdict."""

from acpc_server.scoring.kind import ScoreJobKind
from acpc_server.scoring.preview import preview_anchors
from acpc_server.scoring.spec import ScoreSpec
