"""Visual perturbations: a specification and a key in, perturbed frames out, reproducibly."""

from acpc_server.perturb import blurs, placement
from acpc_server.perturb.base import PerturbationSpec
from acpc_server.perturb.camera_specs import (
    Brightness,
    ColorJitter,
    Contrast,
    DefocusBlur,
    Jpeg,
    MotionBlur,
    Occlusion,
    RandomShift,
)
from acpc_server.perturb.photometric import IMAGE_CODEC
from acpc_server.perturb.registry import Perturbation, perturbation, register
from acpc_server.perturb.specs import (
    AnyPerturbation,
    GaussianBlur,
    GaussianNoise,
    Identity,
    Registered,
    Resize,
    parse_spec,
)
from acpc_server.perturb.transforms import perturb_frames

__all__ = [
    "IMAGE_CODEC",
    "AnyPerturbation",
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
    "PerturbationSpec",
    "RandomShift",
    "Registered",
    "Resize",
    "blurs",
    "parse_spec",
    "perturb_frames",
    "perturbation",
    "placement",
    "register",
]
