"""Visual perturbations: a specification and a key in, perturbed frames out, reproducibly.

The contract declares the built-in kinds; this package has the function of each and a registry of
plug-ins.
"""

from acpc.contract import (
    Brightness,
    ColorJitter,
    Contrast,
    DefocusBlur,
    GaussianBlur,
    GaussianNoise,
    Identity,
    Jpeg,
    MotionBlur,
    Occlusion,
    RandomShift,
    Registered,
    Resize,
    VisualChange,
)

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
    "Brightness",
    "ColorJitter",
    "Contrast",
    "DefocusBlur",
    "GaussianBlur",
    "GaussianNoise",
    "Identity",
    "Jpeg",
    "MotionBlur",
    "Occlusion",
    "Perturbation",
    "RandomShift",
    "Registered",
    "Resize",
    "VisualChange",
    "is_stochastic",
    "perturb_frames",
    "perturbation",
    "register",
    "require_known",
    "resolve",
]
