"""What plugs into other libraries; none of them is imported before it is used.

``CemCertificates`` goes into stable-worldmodel's CEM solvers, ``ScoreCheckpointCallback`` into a
Lightning trainer, and ``EpochScorer`` into any other training loop.
"""

from typing import TYPE_CHECKING

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
_OF_LIGHTNING = ("CallbackOptions", "ScoreCheckpointCallback", "ScreenFailed")


def __getattr__(name: str) -> object:
    """Imports what is a callback of Lightning, and Lightning with it, when it is asked for."""
    if name not in _OF_LIGHTNING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from acpc_lab.integrations import training  # noqa: PLC0415

    return getattr(training, name)
