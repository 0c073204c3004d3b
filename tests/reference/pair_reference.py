"""The answer to ComparePair in float64, from frames to distances, without the server's code.

Random numbers alone are taken from the server's generator, which are its promise; everything that
is computed from them is written out.
"""

from collections.abc import Callable, Sequence
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
    chosen = getattr(spec, kind)
    draws = Draws(kind, [DrawKey(seed, anchor, draw)], torch.device("cpu"))

    def uniforms(*shape: int) -> Array:
        return draws.uniforms((1, *shape))[0].double().numpy()

    views: dict[str, Callable[[], Array]] = {
        "identity": lambda: images,
        "gaussian_noise": lambda: pixels.noisy(
            images, draws.normals(images.shape).numpy(), chosen.sigma
        ),
        "gaussian_blur": lambda: pixels.blurred(images, chosen.kernel_size | 1),
        "resize": lambda: pixels.resized(images, chosen.scale),
        "brightness": lambda: camera.recoloured(images, camera.lit(chosen.change)),
        "contrast": lambda: camera.recoloured(images, camera.spread(chosen.change)),
        "color_jitter": lambda: camera.jittered(images, chosen.strength, draws.numbers(4)[0]),
        "jpeg": lambda: camera.compressed(images, chosen.quality),
        "occlusion": lambda: scene.cut_out(images, chosen.size, 1, draws.numbers(2)[0]),
        "random_shift": lambda: camera.shifted(images, chosen.pixels, draws.numbers(2)[0]),
        "shadow": lambda: camera.shaded(
            images, chosen.strength, chosen.softness, draws.numbers(3)[0]
        ),
        "gamma": lambda: camera.powered(images, chosen.exponent),
        "defocus_blur": lambda: camera.defocused(images, chosen.radius),
        "motion_blur": lambda: camera.moved(images, chosen.length, chosen.angle),
        "saturation": lambda: scene.colourful(images, chosen.change),
        "cutout": lambda: scene.cut_out(
            images, chosen.size, chosen.patches, draws.numbers(2 * chosen.patches)[0]
        ),
        "distractor": lambda: scene.distracted(
            images, chosen.size, chosen.speed, draws.numbers(6)[0]
        ),
        "background": lambda: scene.another_background(
            images, chosen.strength, empty(images, chosen), chosen.tolerance, uniforms(3, 4, 4)
        ),
        "random_convolution": lambda: scene.convolved(
            images, chosen.strength, draws.numbers(81)[0]
        ),
        "zoom": lambda: scene.zoomed(images, chosen.cut, draws.numbers(2)[0]),
        "knocked_camera": lambda: scene.knocked(
            images, chosen.degrees, chosen.field_of_view, draws.numbers(3)[0]
        ),
        "haze": lambda: scene.hazy(images, chosen.strength, uniforms(4, 4)),
        "salt_and_pepper": lambda: scene.peppered(
            images, chosen.share, uniforms(len(images), *images.shape[2:])
        ),
        "stutter": lambda: scene.stuttered(images, chosen.chance, draws.numbers(len(images))[0]),
    }
    return views[kind]()


def empty(images: Array, chosen: perturbation_pb2.Background) -> Array:
    """What a background is known by, in [0, 1], (3, height, width)."""
    if chosen.key:
        rgb = np.frombuffer(bytes.fromhex(chosen.key), np.uint8) / 255
        return np.broadcast_to(rgb[:, None, None], images.shape[1:])
    plate = np.frombuffer(chosen.plate, np.uint8).reshape(1, -1, chosen.plate_width, 3)
    return camera.pixels(pixels.model_input(plate, min(images.shape[2:])))[0]


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
