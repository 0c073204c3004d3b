"""What plugs into other libraries; none of them is imported before it is used.

``CemCertificates`` goes into stable-worldmodel's CEM solvers, ``ScoreCheckpointCallback`` into a
Lightning trainer, and ``EpochScorer`` into any other training loop.
"""

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

from acpc_lab.integrations.cem import CemCertificates, IterationCertificate
from acpc_lab.integrations.epochs import EpochScore, EpochScorer, ScoringOptions

if TYPE_CHECKING:
    from acpc_lab.integrations.training import (
        CallbackOptions,
        ScoreCheckpointCallback,
        ScreenFailed,
    )

__all__ = [
    "CallbackOptions",
    "CemCertificates",
    "EpochScore",
    "EpochScorer",
    "IterationCertificate",
    "ScoreCheckpointCallback",
    "ScoringOptions",
    "ScreenFailed",
]
# What is a callback of Lightning is imported, and Lightning with it, when it is asked for.
_OF_LIGHTNING = {"training": "CallbackOptions ScoreCheckpointCallback ScreenFailed"}
__getattr__, __dir__ = lazy_face(__name__, _OF_LIGHTNING)
