"""How right the evidence is: intervals, sequential jobs, certificates, on worlds of known truth.

    python benchmarks/evidence.py intervals [--experiments 2000] [--out FILE]

A study NAME is the function ``report`` of the module ``evidence_NAME`` beside this one; its
arguments are the options.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from common import run

STUDIES = sorted(
    path.stem.removeprefix("evidence_") for path in Path(__file__).parent.glob("evidence_*.py")
)


def main() -> None:
    """Command line entry."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in STUDIES:
        raise SystemExit(f"name a study: {', '.join(STUDIES)}")
    run(import_module(f"evidence_{name}").report, sys.argv[2:])


if __name__ == "__main__":
    main()
