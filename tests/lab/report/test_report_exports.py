"""Figures as files."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from acpc_lab.report import export_figures
from PIL import Image
from report_samples import sweep

pytestmark = pytest.mark.process  # it draws whole reports


def test_every_figure_is_there_as_svg_and_png(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    export_figures(sweep(("tworoom",), ("1", "2"), (0, 0.08), ("gaussian_noise:0.08",)), folder)
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
