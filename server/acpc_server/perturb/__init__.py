"""Visual perturbations: a specification and a key in, perturbed frames out, reproducibly.

The contract declares the built-in kinds; this package has the function of each and a registry of
plug-ins.
"""

from acpc_server.perturb import blurs
from acpc_server.perturb.photometric import IMAGE_CODEC
from acpc_server.perturb.registry import (
    Perturbation,
    is_stochastic,
    perturbation,
    register,
    require_known,
    resolve,
)
from acpc_server.perturb.transforms import perturb_frames

__all__ = [
    "IMAGE_CODEC",
    "Perturbation",
    "is_stochastic",
    "perturb_frames",
    "perturbation",
    "register",
    "require_known",
    "resolve",
]
