"""Scores checkpoints as they appear at a server.

docs/watch.md describes the ``acpc watch`` command. Whoever wants each score as it comes gives
``Watch`` a listener: a function of a ``ScoredCheckpoint``, whose ``results`` hold every cell of the
checkpoint with its score.
"""

from acpc_lab.watching.arrivals import Arrival
from acpc_lab.watching.watch import Listener, ScoredCheckpoint, Watch

__all__ = ["Arrival", "Listener", "ScoredCheckpoint", "Watch"]
