"""``acpc report``."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from acpc_client import (
    save_result,
)
from acpc_command import Acpc, acpc_command
from PIL import Image
from report_samples import judged, saved, side

pytestmark = pytest.mark.process  # it draws whole reports


@pytest.fixture
def acpc() -> Acpc:
    return acpc_command()


@pytest.fixture
def scores(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "before.npz", tmp_path / "after.json"]
    for path, push in zip(paths, (2.0, 0.2), strict=True):
        saved(path, judged(side(path.stem, push, 2.0), side("base", 2.0, 2.0)))
    return paths


def test_files_become_a_page_and_figures(acpc: Acpc, scores: list[Path], tmp_path: Path) -> None:
    output, figures = tmp_path / "page.html", tmp_path / "figures"
    result = acpc("report", *scores, "--out", output, "--figures", figures)
    assert f"{output}: 2 measurements" in result.stdout
    page = output.read_text()
    assert "95 % sure: of 2 checkpoints, 1 passes under gaussian_blur:15, 1 fails" in page
    assert "No pictures: " in page
    assert {path.name for path in figures.iterdir()} == {
        f"{name}.{suffix}"
        for name in ("plane", "distributions-gaussian-blur-15")
        for suffix in ("svg", "png")
    }
    for path in figures.glob("*.svg"):
        root = ET.parse(path).getroot()  # noqa: S314 - our own
        assert root.tag.endswith("svg") and float(root.attrib["viewBox"].split()[2]) > 100
    for path in figures.glob("*.png"):
        with Image.open(path) as image:
            assert min(image.size) > 300
            assert len(set(image.convert("L").resize((64, 64)).tobytes())) > 2


def test_a_file_without_what_was_asked_is_named(acpc: Acpc, tmp_path: Path) -> None:
    score = judged(side("trained", 0.2, 2.0), side("base", 2.0, 2.0))
    told, alone, output = tmp_path / "told.npz", tmp_path / "alone.npz", tmp_path / "page.html"
    saved(told, score, "gaussian_noise:0.08")
    save_result(score, alone)
    acpc("report", told, "--out", output, "--no-pictures")
    assert "under gaussian_noise:0.08" in output.read_text()
    refused = acpc("report", told, alone, "--out", output, "--no-pictures", code=2)
    assert "alone.npz does not say what was asked" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.sweep"], "is no file and no folder"),
        (["nowhere/sweep"], "is no file and no folder"),
        (["{npz}", "operations/1"], "wanted one kind of source"),
        (["{npz}", "--out", "no/such/folder.html"], "does not exist"),
        (["{broken}"], "is no JSON"),
    ],
)
def test_wrong_usage_is_said_and_exits_with_two(
    acpc: Acpc, scores: list[Path], tmp_path: Path, arguments: list[str], words: str
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps({})[:-1])
    filled = [item.format(npz=scores[0], broken=broken) for item in arguments]
    result = acpc("report", *filled, code=2)
    # Long paths are wrapped inside a frame.
    assert words.replace(" ", "") in "".join(result.output.replace("│", "").split())


@pytest.mark.parametrize("job", ["operations/5f0c9a", "5f0c9a", "nightly", "latest"])
def test_a_job_is_named_as_to_every_command(acpc: Acpc, job: str) -> None:
    assert "no server answers" in acpc("report", job, "--target", "127.0.0.1:1", code=1).output
