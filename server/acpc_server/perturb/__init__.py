"""Visual perturbations: a specification and a key in, perturbed frames out, reproducibly."""

from acpc_server.perturb.registry import Perturbation, perturbation, register
from acpc_server.perturb.specs import (
    AnyPerturbation,
    GaussianBlur,
    GaussianNoise,
    Identity,
    PerturbationSpec,
    Registered,
    Resize,
    parse_spec,
)
from acpc_server.perturb.transforms import perturb_frames

__all__ = [
    "AnyPerturbation",
    "GaussianBlur",
    "GaussianNoise",
    "Identity",
    "Perturbation",
    "PerturbationSpec",
    "Registered",
    "Resize",
    "parse_spec",
    "perturb_frames",
    "perturbation",
    "register",
]
