"""What a model family of another distribution is written with; see docs/bring-your-own-model.md.

A builder is given the parsed ``config.json`` and a reader of the weights. It matches the config
against a :class:`Part` of its own, makes the network on the meta device, counts its parameters
before memory is taken for them, and fills in the weights. Nothing in a checkpoint is executed.
"""

from acpc_server.errors import InvalidArgument, UnsafeCheckpoint
from acpc_server.models.config import JsonObject, Part, parse_config
from acpc_server.models.folder import CheckpointLimits
from acpc_server.models.frozen import FrozenNetwork, FrozenWorldModel, ModelCard
from acpc_server.models.loader import ENTRY_POINT_GROUP, ModelFamily
from acpc_server.models.weights import StateReader, count_parameters, fill

__all__ = [
    "ENTRY_POINT_GROUP", "CheckpointLimits", "FrozenNetwork", "FrozenWorldModel", "InvalidArgument",
    "JsonObject", "ModelCard", "ModelFamily", "Part", "StateReader", "UnsafeCheckpoint",
    "count_parameters", "fill", "parse_config",
]  # fmt: skip
