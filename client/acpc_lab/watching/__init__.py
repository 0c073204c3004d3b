"""Scores checkpoints as they appear in a folder.

docs/watch.md describes the ``acpc watch`` command. Whoever wants each score as it comes gives
``Watch`` a listener: a function of a ``ScoredCheckpoint``, whose ``results`` hold every cell of the
checkpoint with its score.
"""

from acpc_lab.watching.finding import Arrival, Finder, WeightsFile
from acpc_lab.watching.watch import Listener, ScoredCheckpoint, Watch

__all__ = ["Arrival", "Finder", "Listener", "ScoredCheckpoint", "Watch", "WeightsFile"]
