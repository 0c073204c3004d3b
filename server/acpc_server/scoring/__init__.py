"""Checkpoint jobs: IR, SR and the verdict."""

from acpc_server.scoring.job import CheckpointScoring
from acpc_server.scoring.plan import Protocol, ScorePlan, ScreenThresholds
from acpc_server.scoring.preview import AnchorPreview
