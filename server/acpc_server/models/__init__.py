"""Checkpoint folder to frozen world model: safe reading, the known families, plug-ins, rollout."""

from acpc_server.models.conformance import check_model
from acpc_server.models.convert import Container, DtypeName, convert_object, convert_weights
from acpc_server.models.folder import (
    CheckpointEntry,
    CheckpointLimits,
    find_checkpoint,
    list_checkpoints,
)
from acpc_server.models.frozen import (
    FrozenJepa,
    FrozenNetwork,
    FrozenWorldModel,
    ModelCard,
    TakesProprio,
    Widens,
    check_actions,
    check_history,
    check_proprio,
    with_proprio,
)
from acpc_server.models.jepa_model import JepaModel
from acpc_server.models.loader import load_checkpoint
from acpc_server.models.products import PACKED_TOLERANCES, packs, tried_products, wrong_products
from acpc_server.models.rollout import rollout, rollout_pool
from acpc_server.models.sample import sample_model

__all__ = [
    "PACKED_TOLERANCES", "CheckpointEntry", "CheckpointLimits", "FrozenJepa", "FrozenNetwork",
    "FrozenWorldModel", "JepaModel", "ModelCard", "TakesProprio", "Widens", "check_actions",
    "check_history", "check_proprio", "list_checkpoints", "load_checkpoint", "packs", "rollout",
    "rollout_pool", "sample_model", "tried_products", "with_proprio", "wrong_products",
]  # fmt: skip
