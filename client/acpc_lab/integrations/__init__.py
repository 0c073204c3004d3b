"""What plugs into other libraries; none of them is imported before it is used.

``CemCertificates`` goes into stable-worldmodel's CEM solvers, ``ScoreCheckpointCallback`` into a
Lightning trainer, and ``EpochScorer`` into any other training loop.
"""

from acpc_lab.integrations.cem import CemCertificates, IterationCertificate
from acpc_lab.integrations.epochs import EpochScore, EpochScorer, ScoringOptions
from acpc_lab.integrations.training import CallbackOptions, ScoreCheckpointCallback, ScreenFailed

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
