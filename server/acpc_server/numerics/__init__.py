"""The paper's mathematics as pure functions on tensors: no I/O, no wire, no models."""

from acpc_server.numerics import (
    consistency,
    cost_bounds,
    local,
    objectives,
    pairing,
    screening,
    updates,
)
from acpc_server.numerics.consistency import horizon_weights
from acpc_server.numerics.cost_bounds import Reduction, check_tolerance, elite_indices, goal_costs
from acpc_server.numerics.keyed_random import (
    Key,
    host_philox,
    key_words,
    keyed_generator,
    philox_words,
)
from acpc_server.numerics.local import local_geometry
from acpc_server.numerics.normals import normals_from
from acpc_server.numerics.objectives import PoolCost, check_objective
from acpc_server.numerics.pairing import Check, go_on
from acpc_server.numerics.pixels import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    PIECE_BYTES,
    filled,
    input_size,
    per_channel,
    to_model_input,
    to_pixels,
)
from acpc_server.numerics.quantiles import linear_quantile, linear_quantiles
from acpc_server.numerics.updates import (
    CemProposal,
    fit_proposal,
    pool_normals,
    sample_pool,
)
