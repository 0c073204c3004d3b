"""Packages as pip leaves them on a path, without pip: files, and metadata with entry points."""

import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path


def install(source: Path, target: Path) -> Path:
    """Lay out the project in ``source`` below ``target``, for PYTHONPATH.

    The package has the project's name with underscores, as build backends assume.
    """
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    package = project["name"].replace("-", "_")
    shutil.copytree(
        source / package, target / package, ignore=shutil.ignore_patterns("__pycache__")
    )
    _describe(target, package, project["version"], project["entry-points"])
    return target


def install_module(target: Path, name: str, text: str, group: str, **entries: str) -> None:
    """Lay out a distribution of one module, whose entry points are of one group."""
    target.mkdir(exist_ok=True)
    (target / f"{name}.py").write_text(text)
    _describe(target, name, "1.0", {group: entries})


def _describe(
    target: Path, package: str, version: str, points: Mapping[str, Mapping[str, str]]
) -> None:
    info = target / f"{package}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = []
    for group, entries in points.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
