"""Where the examples lie, and plug-ins laid out as pip installs them."""

import shutil
import tomllib
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def install(source: Path, target: Path) -> Path:
    """Lay out the project in ``source`` below ``target``, for PYTHONPATH: files, and metadata.

    The package has the project's name with underscores, as build backends assume.
    """
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    package = project["name"].replace("-", "_")
    shutil.copytree(
        source / package, target / package, ignore=shutil.ignore_patterns("__pycache__")
    )
    info = target / f"{package}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return target
