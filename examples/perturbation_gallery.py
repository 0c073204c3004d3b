"""Every perturbation at three severities, as docs/perturbations.png.

Run by hand when a perturbation changes: python examples/perturbation_gallery.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from acpc.contract import GRADED, Perturbation, VisualChange, examples_of, parse_grid
from acpc_server.numerics import to_model_input, to_pixels
from acpc_server.perturb import perturb_frames
from PIL import Image, ImageDraw, ImageFont

TARGET = Path(__file__).parents[1] / "docs" / "perturbations.png"
EVERYDAY = TARGET.with_name("everyday.png")
SIDE = 112
"""Of a model input."""
DRAW = 11
COLUMNS = 3
GAP, CAPTION = 6, 17
INK = (40, 40, 40)
Row = list[tuple[str, Image.Image]]


def scene(side: int) -> np.ndarray:
    """A tabletop with things on it, uint8 (side, side, 3): edges, texture, shading and colour."""
    big = 4 * side
    row = np.linspace(0, 1, big)[:, None, None]
    canvas = np.array([196, 208, 216]) * (1 - 0.35 * row) * np.ones((1, big, 1))
    image = Image.fromarray(canvas.astype(np.uint8))
    pen = ImageDraw.Draw(image)

    def at(*values: float) -> list[float]:
        return [value * big for value in values]

    pen.rectangle(at(0, 0.52, 1, 1), fill=(150, 112, 78))
    for plank in range(6):
        left = plank / 6 + 0.015
        pen.line(at(0.5 + (left - 0.5) * 0.8, 0.52, left, 1), fill=(124, 90, 60), width=big // 110)
    for column in range(4):
        for line in range(3):
            fill = (30, 30, 34) if (column + line) % 2 else (240, 240, 236)
            x, y = 0.08 + 0.06 * column, 0.14 + 0.06 * line
            pen.rectangle(at(x, y, x + 0.06, y + 0.06), fill=fill)
    pen.polygon(at(0.13, 0.62, 0.33, 0.58, 0.33, 0.8, 0.13, 0.86), fill=(196, 44, 38))
    pen.polygon(at(0.33, 0.58, 0.42, 0.63, 0.42, 0.84, 0.33, 0.8), fill=(140, 26, 26))
    pen.polygon(at(0.13, 0.62, 0.22, 0.66, 0.42, 0.63, 0.33, 0.58), fill=(232, 96, 84))
    for ring in range(40):
        t = ring / 40
        x, y, radius = 0.62 - 0.03 * t, 0.74 - 0.035 * t, 0.115 * (1 - t)
        shade = tuple(int(v) for v in np.array([24, 112, 70]) + t * np.array([150, 120, 130]))
        pen.ellipse(at(x - radius, y - radius, x + radius, y + radius), fill=shade)
    pen.rectangle(at(0.79, 0.45, 0.93, 0.72), fill=(38, 84, 170))
    pen.ellipse(at(0.79, 0.68, 0.93, 0.76), fill=(38, 84, 170))
    pen.ellipse(at(0.79, 0.41, 0.93, 0.49), fill=(98, 146, 226))
    pen.line(at(0.56, 0, 0.56, 0.3), fill=(70, 72, 78), width=big // 24)
    pen.line(at(0.47, 0.48, 0.47, 0.33, 0.65, 0.33, 0.65, 0.48), fill=(70, 72, 78), width=big // 34)
    pen.ellipse(at(0.53, 0.28, 0.59, 0.34), fill=(226, 178, 40))
    return np.asarray(image.resize((side, side), Image.Resampling.LANCZOS))


def seen(frame: np.ndarray, shift: Perturbation) -> Image.Image:
    """The frame as the model sees it under a perturbation, back in grey levels."""
    _, [(_, picture)] = drawn(frame[None], [shift], min(frame.shape[:2]), DRAW)
    return picture


def rows_of(kind: str, frame: np.ndarray) -> list[Row]:
    """A kind, mild to strong; three frames of a moving scene where one frame shows nothing."""
    examples = examples_of(kind)
    texts = [str(examples[0]), *(str(shift).partition(":")[2] for shift in examples[1:])]
    pictures = [seen(frame, shift) for shift in examples]
    if all(np.array_equal(picture, frame) for picture in pictures):
        moving = np.stack([np.roll(frame, 12 * time, axis=1) for time in range(3)])
        return drawn(moving, examples, SIDE)[1:]
    return [list(zip(texts, pictures, strict=True))]


def drawn(
    frames: np.ndarray, shifts: Sequence[VisualChange], image_size: int, draw: int = 0
) -> list[Row]:
    """Draws frames, uint8 (n, height, width, 3), as they are, then under each change."""
    history = to_model_input(torch.from_numpy(frames.copy()), image_size)
    rows = [_row("the frames" if len(frames) > 1 else "the frame", history)]
    for change in shifts:
        view = perturb_frames(history, change, seed=0, anchor=0, draw=draw)
        rows.append(_row(str(change), view))
    return rows


def _row(caption: str, view: torch.Tensor) -> Row:
    pictures = [Image.fromarray(frame) for frame in to_pixels(view).numpy()]
    return [(caption if not place else "", picture) for place, picture in enumerate(pictures)]


def sheet(rows: Sequence[Row], columns: int = 1) -> Image.Image:
    """Draws rows of pictures of one size below their captions, in so many columns of rows.

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


def main() -> None:
    """Draws the pictures."""
    frame = scene(SIDE)
    clean = ("the frame", Image.fromarray(frame))
    rows = [[clean], *(row for kind in GRADED for row in rows_of(kind, frame))]
    save(sheet(rows, COLUMNS), TARGET)
    changes = [clean, *((str(shift), seen(frame, shift)) for shift in parse_grid("everyday"))]
    save(sheet([changes[:3], changes[3:6], changes[6:]]), EVERYDAY)


def save(picture: Image.Image, target: Path) -> None:
    """Writes a picture."""
    picture.save(target, optimize=True)
    print(f"wrote {target}: {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
