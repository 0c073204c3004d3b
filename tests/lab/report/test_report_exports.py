"""Figures as files, and the values they are drawn from."""

import csv
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from acpc_lab.report import ReportData, export_figures
from acpc_lab.report.distributions import steps_of
from PIL import Image
from report_samples import sweep

pytestmark = pytest.mark.process  # it draws whole reports


@pytest.fixture(scope="module")
def small() -> ReportData:
    return sweep(("tworoom",), ("1", "2"), (0, 0.08), ("gaussian_noise:0.08",))


@pytest.fixture(scope="module")
def folder(small: ReportData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("figures") / "new"
    export_figures(small, target)
    return target


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_figure_is_there_as_svg_and_png(folder: Path) -> None:
    kinds = ("levels", "distributions", "steps")
    wanted = {"plane", *(f"{kind}-gaussian-noise-0.08" for kind in kinds)}
    for suffix in ("svg", "png"):
        assert {
            path.name.removesuffix(f".{suffix}") for path in folder.glob(f"*.{suffix}")
        } == wanted
    for path in folder.glob("*.svg"):
        root = ET.parse(path).getroot()  # noqa: S314 - our own
        assert root.tag.endswith("svg") and float(root.attrib["viewBox"].split()[2]) > 100
    for path in folder.glob("*.png"):
        with Image.open(path) as image:
            assert min(image.size) > 300
            assert len(set(image.convert("L").resize((64, 64)).tobytes())) > 2


def test_anchors_give_back_ir_and_sr(small: ReportData, folder: Path) -> None:
    """Whoever has the CSV alone finds the reported numbers."""
    found = rows(folder, "anchors")
    for cell in small.cells:
        mine = [row for row in found if row["checkpoint"] == cell.name]
        ir_raw = np.quantile([float(row["radius"]) for row in mine], 0.9)
        assert ir_raw == pytest.approx(cell.value("ir_raw"), rel=1e-12)
        apart = [row["different_state_distance"] for row in mine]
        tested = [float(value) for value in apart if value]
        assert sum(value > ir_raw + 0.1 for value in tested) / len(tested) == cell.value("sr")


def test_steps_are_quantiles_over_anchors(small: ReportData, folder: Path) -> None:
    first = small.cells[0]
    steps = steps_of(first)
    assert steps is not None
    mine = [row for row in rows(folder, "steps") if row["checkpoint"] == first.name]
    assert [int(row["step"]) for row in mine] == list(range(1, steps.shape[1] + 1))
    for row, column in zip(mine, steps.T, strict=True):
        assert float(row["q50"]) == pytest.approx(np.median(column))
        assert float(row["q90"]) == pytest.approx(np.quantile(column, 0.9))
