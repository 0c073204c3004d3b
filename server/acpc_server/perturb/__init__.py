"""Visual perturbations: a specification and a key in, perturbed frames out, reproducibly.

The contract declares the built-in kinds; this package has the function of each and a registry of
plug-ins.
"""

from acpc_server.perturb import blurs, camera, scene
from acpc_server.perturb.draws import DRAW_FORMAT, DrawKey, Draws
from acpc_server.perturb.photometric import IMAGE_CODEC
from acpc_server.perturb.registry import (
    PIECE_WORK,
    Cost,
    Perturbation,
    check_drawing,
    drawing_work,
    is_stochastic,
    perturbation,
    register,
    require_known,
    resolve,
    series_name,
)
from acpc_server.perturb.transforms import NOT_DRAWN, perturb_frames, perturb_histories
