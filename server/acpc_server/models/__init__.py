"""Checkpoint folder to frozen world model: safe reading, the known families, plug-ins, rollout."""

from acpc_server.models.folder import CheckpointEntry, CheckpointLimits
from acpc_server.models.frozen import (
    FrozenJepa,
    FrozenWorldModel,
    ModelCard,
    Reduces,
    check_actions,
    check_history,
)
from acpc_server.models.jepa import JepaModel
from acpc_server.models.loader import list_checkpoints, load_checkpoint
from acpc_server.models.rollout import rollout, rollout_pool

__all__ = [
    "CheckpointEntry",
    "CheckpointLimits",
    "FrozenJepa",
    "FrozenWorldModel",
    "JepaModel",
    "ModelCard",
    "Reduces",
    "check_actions",
    "check_history",
    "list_checkpoints",
    "load_checkpoint",
    "rollout",
    "rollout_pool",
]
