"""Writes docs/performance.md, so that it holds no figure that a benchmark has not written.

    python benchmarks/page.py [--collect | --check]

The words are in performance.md beside this file. A figure in them names its place in the reports,
with a goal where there is one: ``{score_job[ratio]:.2f >=3.8}``. Where the unit has a prefix, a
scale stands before the format: ``{score_job[flops][job]:T.2f} TFLOP``. ``--collect`` first takes
the reports of build/benchmarks into measured.json, which is kept beside the words, so that the page
can be made and checked anywhere.
"""

from __future__ import annotations

import argparse
import json
import operator
import string
import sys
from collections.abc import Mapping
from typing import Any

from common import ROOT

HERE = ROOT / "benchmarks"
PAGE = ROOT / "docs/performance.md"
SCALES = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "m": 1e-3, "u": 1e-6, "i": 2**20}
"""Prefixes of units; ``i`` is MiB."""
GOALS = {">=": operator.ge, "<=": operator.le}


class Figures(string.Formatter):
    """``str.format`` with scales, goals and, of a report, the machine and commit it is from."""

    def format_field(self, value: Any, format_spec: str) -> str:  # noqa: ANN401
        """A figure as the page shows it."""
        if format_spec == "from":
            return _origin(value["machine"])
        shown, _, goal = format_spec.partition(" ")
        if shown[:1] in SCALES:
            value, shown = value / SCALES[shown[0]], shown[1:]
        text = format(value, shown)
        if not goal:
            return text
        met = GOALS[goal[:2]](value, float(goal[2:]))
        return f"{text} (goal {goal[2:]}{'' if met else ': missed'})"


def _origin(machine: Mapping[str, Any]) -> str:
    memory = machine["memory_bytes"] / 2**30
    return (
        f"{machine['processor']}, {machine['cores']} cores, {memory:.0f} GiB, "
        f"torch {machine['torch']}, load {machine['load']:.1f}, commit {machine['commit']}"
    )


def page() -> str:
    """The page.

    Raises:
        KeyError: A figure that no report has.
    """
    # In a field [4] is a number.
    measured = json.loads(
        (HERE / "measured.json").read_text(),
        object_hook=lambda found: {int(k) if k.isdigit() else k: v for k, v in found.items()},
    )
    return Figures().vformat((HERE / "performance.md").read_text(), (), measured)


def collect() -> None:
    """Takes what was measured last; reports of benchmarks that did not run stay."""
    kept = HERE / "measured.json"
    reports = json.loads(kept.read_text()) if kept.is_file() else {}
    for path in sorted((ROOT / "build/benchmarks").glob("*.json")):
        reports[path.stem] = json.loads(path.read_text())
    kept.write_text(json.dumps(reports, indent=1, sort_keys=True) + "\n")


def main() -> None:
    """Command line entry."""
    options = argparse.ArgumentParser(description="Writes docs/performance.md from measurements.")
    options.add_argument("--collect", action="store_true", help="take build/benchmarks first")
    options.add_argument("--check", action="store_true", help="write nothing; fail if it would")
    asked = options.parse_args()
    if asked.check:
        sys.exit(None if PAGE.read_text() == page() else f"{PAGE} differs: run benchmarks/page.py")
    if asked.collect:
        collect()
    PAGE.write_text(page())
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
