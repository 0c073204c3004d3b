"""Checkpoint folder to frozen world model: safe reading, the known families, plug-ins, rollout."""

from acpc_server.models.frozen import (
    FrozenJepa,
    FrozenWorldModel,
    ModelCard,
    check_actions,
    check_history,
)
from acpc_server.models.jepa import JepaModel
from acpc_server.models.rollout import rollout

__all__ = [
    "FrozenJepa",
    "FrozenWorldModel",
    "JepaModel",
    "ModelCard",
    "check_actions",
    "check_history",
    "rollout",
]
