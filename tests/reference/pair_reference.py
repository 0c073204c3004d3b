"""The answer to ComparePair in float64, from frames to distances, without the server's code.

Random numbers alone are taken from the server's generator, which are its promise; everything that
is computed from them is written out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
    return REFERENCES[kind](images, getattr(spec, kind), draws)


def uniforms(draws: Draws, *shape: int) -> Array:
    """Uniform numbers of one draw."""
    return draws.uniforms((1, *shape))[0].double().numpy()


def empty(images: Array, chosen: perturbation_pb2.Background) -> Array:
    """What a background is known by, in [0, 1], (3, height, width)."""
    if chosen.key:
        rgb = np.frombuffer(bytes.fromhex(chosen.key), np.uint8) / 255
        return np.broadcast_to(rgb[:, None, None], images.shape[1:])
    plate = np.frombuffer(chosen.plate, np.uint8).reshape(1, -1, chosen.plate_width, 3)
    return camera.pixels(pixels.model_input(plate, min(images.shape[2:])))[0]


# Each takes normalised images, the kind's message, and the draws.
REFERENCES: dict[str, Callable[[Array, Any, Draws], Array]] = {
    "identity": lambda images, _, __: images,
    "gaussian_noise": lambda images, spec, draws: pixels.noisy(
        images, draws.normals(images.shape).numpy(), spec.sigma
    ),
    "gaussian_blur": lambda images, spec, _: pixels.blurred(images, spec.kernel_size | 1),
    "resize": lambda images, spec, _: pixels.resized(images, spec.scale),
    "brightness": lambda images, spec, _: camera.recoloured(images, camera.lit(spec.change)),
    "contrast": lambda images, spec, _: camera.recoloured(images, camera.spread(spec.change)),
    "color_jitter": lambda images, spec, draws: camera.jittered(
        images, spec.strength, draws.numbers(4)[0]
    ),
    "jpeg": lambda images, spec, _: camera.compressed(images, spec.quality),
    "occlusion": lambda images, spec, draws: scene.cut_out(
        images, spec.size, 1, draws.numbers(2)[0]
    ),
    "random_shift": lambda images, spec, draws: camera.shifted(
        images, spec.pixels, draws.numbers(2)[0]
    ),
    "shadow": lambda images, spec, draws: camera.shaded(
        images, spec.strength, spec.softness, draws.numbers(3)[0]
    ),
    "gamma": lambda images, spec, _: camera.powered(images, spec.exponent),
    "defocus_blur": lambda images, spec, _: camera.defocused(images, spec.radius),
    "motion_blur": lambda images, spec, _: camera.moved(images, spec.length, spec.angle),
    "saturation": lambda images, spec, _: scene.colourful(images, spec.change),
    "cutout": lambda images, spec, draws: scene.cut_out(
        images, spec.size, spec.patches, draws.numbers(2 * spec.patches)[0]
    ),
    "distractor": lambda images, spec, draws: scene.distracted(
        images, spec.size, spec.speed, draws.numbers(6)[0]
    ),
    "background": lambda images, spec, draws: scene.another_background(
        images, spec.strength, empty(images, spec), spec.tolerance, uniforms(draws, 3, 4, 4)
    ),
    "random_convolution": lambda images, spec, draws: scene.convolved(
        images, spec.strength, draws.numbers(81)[0]
    ),
    "zoom": lambda images, spec, draws: scene.zoomed(images, spec.cut, draws.numbers(2)[0]),
    "knocked_camera": lambda images, spec, draws: scene.knocked(
        images, spec.degrees, spec.field_of_view, draws.numbers(3)[0]
    ),
    "haze": lambda images, spec, draws: scene.hazy(images, spec.strength, uniforms(draws, 4, 4)),
    "salt_and_pepper": lambda images, spec, draws: scene.peppered(
        images, spec.share, uniforms(draws, len(images), *images.shape[2:])
    ),
    "stutter": lambda images, spec, draws: scene.stuttered(
        images, spec.chance, draws.numbers(len(images))[0]
    ),
}


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
