"""The paper's mathematics as pure functions on tensors: no I/O, no wire, no models."""

from acpc_server.numerics import (
    consistency,
    cost_bounds,
    objectives,
    pairing,
    screening,
    sensitivity,
    updates,
    verdict,
)
from acpc_server.numerics.cem import (
    Proposal,
    fit_proposal,
    initial_proposal,
    pool_normals,
    sample_pool,
)
from acpc_server.numerics.consistency import horizon_weights
from acpc_server.numerics.cost_bounds import Reduction, check_tolerance, elite_indices, goal_costs
from acpc_server.numerics.geometry import local_geometry
from acpc_server.numerics.keyed_random import key_words, keyed_generator, standard_normals
from acpc_server.numerics.normals import normals_from
from acpc_server.numerics.objectives import PoolCost, check_objective
from acpc_server.numerics.pairing import Check, go_on
from acpc_server.numerics.philox import Key, host_philox, philox_words
from acpc_server.numerics.pixels import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    input_size,
    per_channel,
    to_model_input,
    to_pixels,
)
from acpc_server.numerics.quantiles import linear_quantile, linear_quantiles
