"""Scores checkpoints as they appear in a folder, or as a trainer asks for them over HTTP.

docs/watch.md describes the ``acpc watch`` command. Whoever wants each score as it comes gives
``Watch`` a listener: a function of a ``ScoredCheckpoint``, whose ``results`` hold every cell of the
checkpoint with its score.
"""

from acpc_lab.watching.arrivals import (
    Arrival,
    Listener,
    ScoredCheckpoint,
    ScoringRequest,
    run_of,
)
from acpc_lab.watching.finding import Finder, WeightsFile
from acpc_lab.watching.watch import Watch, WatchRun
from acpc_lab.watching.webhook import Webhook

__all__ = [
    "Arrival", "Finder", "Listener", "ScoredCheckpoint", "ScoringRequest", "Watch", "WatchRun",
    "Webhook", "WeightsFile", "run_of",
]  # fmt: skip
