"""Shows what a model saw at some anchors of a job, as pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from acpc.contract import AnchorPreview, AnchorPreviews, GivenViews
from torch import Tensor

from acpc_server.encoding import AnchorReaders, given_inputs
from acpc_server.errors import InvalidArgument
from acpc_server.jobs import unpack
from acpc_server.numerics import to_model_input, to_pixels
from acpc_server.perturb import perturb_frames
from acpc_server.scoring.spec import ScoreSpec

MAX_PREVIEWS = 32
# Pictures of one answer, which travels in one message.
MAX_PICTURE_BYTES = 48 * 2**20


def preview_anchors(
    readers: AnchorReaders,
    spec: ScoreSpec,
    result: Mapping[str, Any],
    indices: Sequence[int],
    draw: int,
) -> AnchorPreviews:
    """Pictures of some anchors of a job that succeeded."""
    spec = spec.first(result["checkpoint"]["anchors"])
    _check(spec, indices, draw)
    seen = result["seen"]
    anchors = readers.reopen(
        spec.anchors, result["anchors"], history=seen["history"], horizon=spec.protocol.horizon
    )
    partner, shift = unpack(result["checkpoint"]["partner"]), spec.shift

    def history(index: int) -> Tensor:
        frames = anchors.read_frames(index, index + 1)[0, : anchors.history]
        return to_model_input(torch.from_numpy(frames.copy()), seen["image_size"])

    previews: list[AnchorPreview] = []
    for index in indices:
        clean = history(index)  # (h, 3, height, width)
        total = 3 * len(indices) * clean.numel()  # clean, perturbed, partner; a byte a channel
        if total > MAX_PICTURE_BYTES:
            raise InvalidArgument(
                "anchors",
                f"pictures of {len(indices)} anchors are {total} bytes, over {MAX_PICTURE_BYTES}; "
                f"ask for {max(1, MAX_PICTURE_BYTES // (3 * clean.numel()))} at a time",
            )
        if isinstance(shift, GivenViews):
            perturbed = given_inputs(anchors, index, shift, [draw], clean)[0]
        else:
            seed, anchor = spec.protocol.seed, int(anchors.anchor_ids[index])
            perturbed = perturb_frames(clean, shift, seed=seed, anchor=anchor, draw=draw)
        row, other = int(partner[index]), None
        if row >= 0:
            other = to_pixels(history(row)).numpy()
        shown = to_pixels(clean).numpy(), to_pixels(perturbed).numpy(), other
        previews.append(AnchorPreview(index, *shown))
    return AnchorPreviews(tuple(previews))


def _check(spec: ScoreSpec, indices: Sequence[int], draw: int) -> None:
    if not 1 <= len(indices) <= MAX_PREVIEWS:
        raise InvalidArgument(
            "anchors", f"names {len(indices)} anchors; give 1 to {MAX_PREVIEWS} a call"
        )
    for position, index in enumerate(indices):
        if index >= spec.anchors.count:
            raise InvalidArgument(
                f"anchors[{position}]",
                f"is {index}, but the job has {spec.anchors.count} anchors, 0 to "
                f"{spec.anchors.count - 1}",
            )
    if draw >= spec.protocol.draws:
        raise InvalidArgument(
            "draw",
            f"is {draw}, but the job has {spec.protocol.draws} draws, 0 to "
            f"{spec.protocol.draws - 1}",
        )
