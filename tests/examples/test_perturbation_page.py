"""The page on perturbations and its picture keep up with what there is."""

import re
from pathlib import Path

import numpy as np
import parameter_table
import perturbation_gallery as gallery
import pytest
import torch
from acpc.contract import GRADED, KINDS, Registered, parse_grid
from acpc_server.numerics.pixels import to_model_input
from acpc_server.perturb import Perturbation, perturb_frames, register
from PIL import Image

PAGE = Path(__file__).parents[2] / "docs" / "perturbations.md"


def test_every_kind_has_a_row_that_parses_and_a_picture() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", parameter_table.kinds(), re.MULTILINE)
    assert [str(shift) for text in rows for shift in parse_grid(text)] == rows
    assert {text.partition(":")[0] for text in rows} == set(KINDS) - {"registered", "composition"}
    assert "<!-- kinds -->" in PAGE.read_text()
    frame = gallery.scene(gallery.SIDE)
    drawn = {kind: gallery.rows_of(kind, frame) for kind in GRADED}
    assert [kind for kind, rows in drawn.items() if len(rows) > 1] == ["stutter"]
    for rows in drawn.values():
        assert all(len(row) == 3 for row in rows)
        for _, picture in rows[0] if len(rows) == 1 else ():
            assert np.abs(np.asarray(picture, int) - frame).max() > 10


def test_every_shift_on_the_page_parses() -> None:
    texts = re.findall(r"--shift ([a-z_]+:\S+)", PAGE.read_text())
    assert [len(parse_grid(text)) for text in texts] == [3, 9, 5]


def test_the_picture_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The committed one has the same layout."""
    committed = Image.open(gallery.TARGET).size
    monkeypatch.setattr(gallery, "TARGET", tmp_path / "picture.png")
    monkeypatch.setattr(gallery, "EVERYDAY", tmp_path / "everyday.png")
    gallery.main()
    assert Image.open(tmp_path / "picture.png").size == committed


def test_the_plug_in_of_the_page_works() -> None:
    code = next(
        block
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if "class Fade" in block
    )
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102 - our own page
    assert isinstance(names["fade"], Perturbation)
    register(names["fade"])
    frames = to_model_input(torch.full((1, 4, 4, 3), 9, dtype=torch.uint8), 4)
    spec = Registered(name="fade", parameters={"severity": 0.25})
    assert torch.equal(perturb_frames(frames, spec, seed=0, anchor=0, draw=0), frames * 0.75)
