"""acpc-server preview-shifts: what visual changes make of the caller's own frames, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from acpc.contract import VisualChange, parse_grid
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

from acpc_server.errors import AcpcError, InvalidArgument
from acpc_server.numerics import to_model_input, to_pixels
from acpc_server.perturb import perturb_frames

MAX_FRAMES = 8
GAP, CAPTION = 6, 17
INK = (40, 40, 40)
Row = list[tuple[str, Image.Image]]


def preview_shifts(
    file: Annotated[
        Path,
        typer.Argument(
            exists=True, dir_okay=False, help="image, or .npy of uint8 ([frames,] height, width, 3)"
        ),
    ],
    output: Annotated[Path, typer.Option(help="picture to write", dir_okay=False)],
    shift: Annotated[list[str], typer.Option(help="change, grid of one, or everyday")],
    image_size: Annotated[int, typer.Option(min=8, max=512, help="as the model has it")] = 224,
    seed: Annotated[int, typer.Option(min=0, help="of the draw")] = 0,
) -> None:
    """Draw visual changes on at most 8 frames of your own, as a model of this size sees them."""
    try:
        shifts = [change for text in shift for change in parse_grid(text)]
        rows = drawn(read_frames(file), shifts, image_size, seed)
    except AcpcError as error:
        raise typer.BadParameter(str(error)) from error
    if len(rows[0]) == 1:  # one frame: as many changes side by side
        cells = [row[0] for row in rows]
        rows = [cells[start : start + 4] for start in range(0, len(cells), 4)]
    try:
        sheet(rows).save(output)
    except (OSError, ValueError) as error:  # no folder or no room; no format of this name
        raise typer.BadParameter(f"cannot be written: {error}", param_hint="--output") from error
    typer.echo(f"{output}: {len(shifts)} changes")


def read_frames(file: Path) -> UInt8[np.ndarray, "n h w 3"]:
    """Read frames of one history; raises InvalidArgument for what holds none."""
    try:
        if file.suffix == ".npy":
            frames: np.ndarray = np.load(file, allow_pickle=False)
        else:
            frames = np.asarray(Image.open(file).convert("RGB"))
    except (ValueError, EOFError, OSError, MemoryError, Image.DecompressionBombError) as error:
        raise InvalidArgument("file", f"{file} cannot be read: {error}") from error
    frames = frames[None] if frames.ndim == 3 else frames
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
        wanted = "wanted uint8 ([frames,] height, width, 3)"
        raise InvalidArgument("file", f"{file} holds {frames.dtype} {frames.shape}, {wanted}")
    height, width = frames.shape[1:3]
    if not len(frames) or max(height, width) > 8 * min(height, width):
        raise InvalidArgument("file", f"{file} holds {len(frames)} frames of {height} x {width}")
    return frames[:MAX_FRAMES]


def drawn(
    frames: UInt8[np.ndarray, "n h w 3"],
    shifts: Sequence[VisualChange],
    image_size: int,
    seed: int,
    draw: int = 0,
) -> list[Row]:
    """Draw the frames as they are, then under each change, as pictures with captions.

    Raises InvalidArgument, FailedPrecondition: As ``perturb.perturb_frames``.
    """
    history = to_model_input(torch.from_numpy(frames.copy()), image_size)
    rows = [_row("the frames" if len(frames) > 1 else "the frame", history)]
    for change in shifts:
        view = perturb_frames(history, change, seed=seed, anchor=0, draw=draw)
        rows.append(_row(str(change), view))
    return rows


def _row(caption: str, view: torch.Tensor) -> Row:
    pictures = [Image.fromarray(frame) for frame in to_pixels(view).numpy()]
    return [(caption if not place else "", picture) for place, picture in enumerate(pictures)]


def sheet(rows: Sequence[Row], columns: int = 1) -> Image.Image:
    """Draw rows of pictures of one size below their captions, in so many columns of rows.

    A caption that does not fit is cut.
    """
    font = ImageFont.load_default(10)
    width, height = rows[0][0][1].size
    per_column = -(-len(rows) // columns)
    cell, line = width + GAP, height + CAPTION + GAP
    block = max(map(len, rows)) * cell + 2 * GAP
    picture = Image.new("RGB", (columns * block, per_column * line + GAP), "white")
    pen = ImageDraw.Draw(picture)
    for index, row in enumerate(rows):
        x, y = index // per_column * block + GAP, index % per_column * line + GAP
        for place, (caption, image) in enumerate(row):
            alone = not any(text for text, _ in row[place + 1 :])
            room = (len(row) - place) * cell if alone else width
            while font.getlength(caption) > room:
                caption = caption[:-1]  # noqa: PLW2901
            picture.paste(image, (x + place * cell, y + CAPTION))
            pen.text((x + place * cell, y + 2), caption, fill=INK, font=font)
    return picture
