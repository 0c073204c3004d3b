"""Checkpoint folder to frozen world model: safe reading, the known families, plug-ins, rollout."""

from acpc_server.models.archive import Archive, Node, StoredTensor, unsafe
from acpc_server.models.config import CONFIG_NAME, OPTIONS_NAME, JsonObject, read_config
from acpc_server.models.conformance import check_model
from acpc_server.models.folder import (
    DEFAULT_LIMITS,
    SHARD,
    CheckpointEntry,
    CheckpointLimits,
    find_checkpoint,
    folder_time,
    is_unmoved,
    list_checkpoints,
    list_others,
    read_open,
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
from acpc_server.models.jepa_model import (
    Form,
    JepaModel,
    JepaRollout,
    Step,
    Weights,
    captured_form,
    predict_step,
)
from acpc_server.models.loader import load_checkpoint, load_served, read_content
from acpc_server.models.others import one_file_command
from acpc_server.models.parts import FAMILY_OF_TARGET, VIT_SIZES
from acpc_server.models.rollout import forward_derivatives, rollout, rollout_pool
from acpc_server.models.sample import sample_model
from acpc_server.models.weights import (
    AVERAGES,
    WRAPPERS,
    StateReader,
    check_container,
    choose_state,
    unwrap,
)
from acpc_server.models.writing import new_folder, save_weights
