"""Styles figures, and writes them as SVG for a page or as SVG and PNG files."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from acpc_lab.extras import load
from acpc_lab.plotting.palette import COLOURS, INK, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Draw = Callable[[Sequence["Axes"]], None]

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "acpc",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 7.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelsize": 7.5,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "text.color": INK,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "legend.frameon": False,
    "legend.fontsize": 7,
}
TIP = "tip "
"""An artist whose gid starts so carries the rest as a tooltip on the page."""

_ROLES = {value: role for role, (value, _) in COLOURS.items()}
_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_NUMBER = re.compile(r"-?\d+\.\d+")
_NO_DATES = {"Date": None, "Creator": None}


@contextmanager
def styled() -> Iterator[None]:
    """The look of every figure, for drawing and for saving."""
    with load("matplotlib").rc_context(_STYLE):
        yield


def panel(draw: Draw, *, size: tuple[float, float], rows: int = 1) -> Figure:
    """A figure of ``rows`` axes over one x axis, drawn by ``draw``; call it in ``styled``."""
    engine = load("matplotlib.layout_engine").ConstrainedLayoutEngine
    layout = engine(w_pad=0.02, h_pad=0.03, hspace=0.02)
    figure: Figure = load("matplotlib.figure").Figure(figsize=size, layout=layout)
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    draw(list(axes))
    return figure


def settle(figure: Figure) -> Figure:
    """Lays the figure out for good, at rounded places.

    The last bits of the layout differ from one drawing to the next, and ids of clips with them.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = (round(edge, 5) for edge in axes.get_position().bounds)
        axes.set_position((left, bottom, width, height))
    return figure


def write(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Writes the figure as SVG and PNG, in light colours on white, without dates."""
    settle(figure)
    vector, raster = folder / f"{name}.svg", folder / f"{name}.png"
    figure.savefig(vector, format="svg", metadata=_NO_DATES, facecolor="white")
    figure.savefig(raster, format="png", dpi=200, metadata={"Software": None}, facecolor="white")
    return [vector, raster]


def inline(figure: Figure, key: str, description: str) -> str:
    """The figure as SVG for the page: colours by class, ids of its own, a description."""
    buffer = io.BytesIO()
    settle(figure).savefig(buffer, format="svg", metadata=_NO_DATES)
    root = ET.fromstring(buffer.getvalue())  # noqa: S314 - written two lines above
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        _theme(element, key)
    _prune(root)
    title = ET.Element("title")
    title.text = description
    root.insert(0, title)
    root.attrib.update({"role": "img", "class": "figure", "aria-label": description})
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    return ET.tostring(root, encoding="unicode")


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _theme(element: ET.Element, key: str) -> None:
    element.tag = _local(element.tag)
    attributes = element.attrib
    declarations = attributes.pop("style", "")
    classes = []
    for declaration in filter(None, declarations.split(";")):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        role = _ROLES.get(value)
        if name in ("fill", "stroke") and role is not None:
            classes.append(f"{name[0]}-{role}")
        elif name != "font-family":
            attributes[name] = value
    if classes:
        attributes["class"] = " ".join(classes)
    if _LINK in attributes:
        attributes["href"] = f"#{key}-{attributes.pop(_LINK)[1:]}"
    if "clip-path" in attributes:
        attributes["clip-path"] = attributes["clip-path"].replace("#", f"#{key}-")
    identity = attributes.pop("id", "")
    if identity.startswith(TIP):
        tip = ET.SubElement(element, "title")
        tip.text = identity.removeprefix(TIP)
    elif identity:
        attributes["id"] = f"{key}-{identity}"
    for name in ("d", "x", "y", "width", "height", "transform"):
        if name in attributes:
            attributes[name] = _NUMBER.sub(_short, " ".join(attributes[name].split()))
    if element.tag not in {"text", "title"}:
        element.text = None
    element.tail = None


def _short(match: re.Match[str]) -> str:
    text = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _prune(root: ET.Element) -> None:
    """Drops ids that nothing refers to, and groups that hold nothing or say nothing."""
    used = set()
    for element in root.iter():
        used.add(element.get("href", "")[1:])
        used.add(element.get("clip-path", "")[5:-1])
    for element in root.iter():
        if element.get("id", "") not in used:
            element.attrib.pop("id", None)
    for parent in reversed(list(root.iter())):
        flat: list[ET.Element] = []
        for child in list(parent):
            parent.remove(child)
            bare = child.tag == "g" and not child.attrib and child.find("title") is None
            flat += list(child) if bare else [child]
        parent.extend(flat)
