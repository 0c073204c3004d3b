"""From uint8 RGB frames to the tensor a checkpoint was trained on."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

from acpc_server.errors import InvalidArgument

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Channel means of the input normalisation, RGB in [0, 1]."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Channel standard deviations of the input normalisation, RGB in [0, 1]."""


PIECE_BYTES = 2**25
"""Numbers that frames are made of at a time, 32 MiB, or those of one frame."""


def per_channel(values: Sequence[float], like: Tensor) -> Float[Tensor, "3 1 1"]:
    """Return a constant for each channel, typed and placed as ``like``, not to be written to.

    Nothing waits for a device, but for the first of them.
    """
    if type(like) is Tensor:
        return _kept(tuple(values), like.dtype, like.device)
    return filled(values, like)  # of a trace, which it must not outlive


def filled(values: Sequence[float], like: Tensor) -> Float[Tensor, "3 1 1"]:
    """Return :func:`per_channel` of numbers that are seldom the same: as arguments of kernels."""
    out = like.new_empty(3, 1, 1)
    for place, value in zip(out, values, strict=True):
        place.fill_(value)
    return out


@lru_cache(64)
def _kept(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device).view(3, 1, 1)


def to_model_input(
    frames: UInt8[Tensor, "n height width 3"] | Float[Tensor, "n height width 3"],
    image_size: int,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "n 3 model_height model_width"]:
    """Normalise frames and resize their shorter side to the model's image size, on their device.

    Frames are bytes, or real numbers in [0, 1], which are not divided. The order is the public
    training code's: divide by 255, subtract the ImageNet mean, divide by the ImageNet standard
    deviation, then resize (bilinear, antialiased). A frame that already has that shorter side is
    not resampled. The longer side becomes ``int(image_size * longer / shorter)``. However large
    the frames are, few are real numbers at their own size at a time. Raises InvalidArgument:
    ``image_size`` is below 1, or a side of the frames is empty.
    """
    height, width = frames.shape[1:3]
    if image_size < 1:
        raise InvalidArgument("image_size", f"is {image_size}; give at least 1 pixel")
    if min(height, width) < 1:
        raise InvalidArgument("frames", f"are {height} x {width} pixels; no side may be empty")
    parts = torch.split(frames, max(1, PIECE_BYTES // (3 * height * width * dtype.itemsize)))
    if len(parts) == 1:
        return resize_shorter(_normalised(frames, dtype), image_size)
    size = input_size(frames.shape, image_size)
    made = torch.empty(len(frames), 3, *size, dtype=dtype, device=frames.device)
    for part, out in zip(parts, torch.split(made, len(parts[0])), strict=True):
        out.copy_(resize_shorter(_normalised(part, dtype), image_size))
    return made


def _normalised(frames: Tensor, dtype: torch.dtype) -> Float[Tensor, "n 3 height width"]:
    pixels = frames.permute(0, 3, 1, 2).to(dtype, copy=True)
    # By a tensor: a GPU multiplies by the rounded reciprocal of a number.
    if not frames.is_floating_point():
        pixels /= per_channel((255.0,) * 3, pixels)
    pixels -= per_channel(IMAGENET_MEAN, pixels)
    pixels /= per_channel(IMAGENET_STD, pixels)
    return pixels.contiguous()


def resize_shorter(
    images: Float[Tensor, "n 3 height width"], image_size: int
) -> Float[Tensor, "n 3 model_height model_width"]:
    """Resize the shorter side of images as :func:`to_model_input` does; linear in them."""
    size = input_size(images.shape[1:], image_size)
    if size == images.shape[2:]:
        return images
    return functional.interpolate(
        images, size=size, mode="bilinear", align_corners=False, antialias=True
    )


def input_size(shape: Sequence[int], image_size: int) -> tuple[int, int]:
    """Return height and width of frames (n, height, width, 3) after :func:`to_model_input`."""
    height, width = shape[1:3]
    scaled = int(image_size * max(height, width) / min(height, width))
    return (image_size, scaled) if height <= width else (scaled, image_size)


def to_pixels(model_input: Float[Tensor, "n 3 height width"]) -> UInt8[Tensor, "n height width 3"]:
    """Turn what a model sees into frames that a person can look at.

    Undoes the normalisation of :func:`to_model_input`, not its resize, rounds to the nearest
    integer and clips what a picture cannot show, as strong noise makes it.
    """
    mean, std = (per_channel(values, model_input) for values in (IMAGENET_MEAN, IMAGENET_STD))
    levels = ((model_input * std + mean) * 255).round().clamp(0, 255)
    return levels.to(torch.uint8).permute(0, 2, 3, 1).contiguous()  # (n, height, width, 3)
