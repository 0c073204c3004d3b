"""The answer to ComparePair in float64, from frames to distances, without the server's code.

Random numbers alone are taken from the server's generator, which are its promise; everything that
is computed from them is written out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import camera_reference as camera
import numpy as np
import numpy_reference as metrics
import pixel_reference as pixels
import scene_reference as scene
import torch
from acpc.arrays import NDArray
from acpc.v1 import perturbation_pb2
from acpc_server.perturb import DrawKey, Draws
from reference_model import ReferenceModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ReferencePair:
    """The measurements of one view; errors are None without an observed future."""

    acpc: float
    acpc_one_step: float
    step_distances: list[float]
    encoder_shift: float
    clean_error: float | None = None
    perturbed_error: float | None = None


def perturbed(
    images: Array, spec: perturbation_pb2.PerturbationSpec, *, seed: int, anchor: int, draw: int
) -> Array:
    """One view of normalised images under a spec."""
    kind = spec.WhichOneof("kind")
    if kind == "composition":
        for part in spec.composition.parts:
            images = perturbed(images, part, seed=seed, anchor=anchor, draw=draw)
        return images
    draws = Draws(kind, [DrawKey(seed, anchor, draw)], torch.device("cpu"))
    (reference,) = (getattr(x, kind) for x in (pixels, camera, scene) if hasattr(x, kind))
    return reference(images, getattr(spec, kind), draws)


def compare(
    model: ReferenceModel,
    history: NDArray[np.uint8],
    blocks: NDArray[np.float32],
    views: Sequence[Array],
    *,
    future: NDArray[np.uint8] | None = None,
    weights: Sequence[float] = (),
) -> list[ReferencePair]:
    """Every view, given as normalised images, against the clean history.

    Args:
        model: Float64 forward.
        history: uint8 (h, height, width, 3).
        blocks: (h + H - 1, width).
        views: Each (h, 3, side, side).
        future: uint8 (H, height, width, 3).
        weights: Horizon weights; empty for 1 / H.
    """
    actions = blocks.astype(np.float64)
    alphas = list(weights) or metrics.uniform(len(blocks) - len(history) + 1)
    clean = model.encode(pixels.model_input(history, model.image_size))
    rollout = model.rollout(clean, actions)
    observed = None
    if future is not None:
        observed = model.encode(pixels.model_input(future, model.image_size))
    results = []
    for view in views:
        latents = model.encode(view)
        other = model.rollout(latents, actions)
        errors = [None, None]
        if observed is not None:
            errors = [metrics.prediction_error(r, observed, alphas) for r in (rollout, other)]
        steps = metrics.step_distances(rollout, other)
        results.append(
            ReferencePair(
                acpc=metrics.acpc(rollout, other, alphas),
                acpc_one_step=steps[0],
                step_distances=steps,
                encoder_shift=metrics.encoder_shift(clean, latents),
                clean_error=errors[0],
                perturbed_error=errors[1],
            )
        )
    return results
