"""Writes the measured figures of the pages, so that no page has one that no benchmark wrote.

    python benchmarks/page.py [--collect | --check]

What follows ``<!-- figures: NAME -->`` in figures.md, beside this file, stands in one page between
that mark and ``<!-- end of figures -->``, filled in from measured.json. A field names its place in
the reports, with a goal where there is one: ``{score_job[ratio]:.2f>=3.8}``. A figure of several
turns (``common.spread``) is shown with its spread; where that crosses the goal, the goal is not
shown, neither met nor missed. A scale may precede
the format: ``{score_job[flops][job]:T.2f} TFLOP``; ``c`` is for percent. A line that begins with
``@`` stands for a table row a key, where ``label=key`` gives a key another name:
``@ SQLite=sqlite; postgresql: | LABEL | {idle[KEY][percent_of_a_core]:.1f} |``. ``--collect``
first takes the reports of build/benchmarks into measured.json, which is kept, so that pages can be
made and checked anywhere.
"""

from __future__ import annotations

import argparse
import json
import operator
import re
import string
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common import ROOT

HERE = ROOT / "benchmarks"
PARTS = re.compile(r"(<!-- figures: (.+?) -->\n).*?(?=<!-- end of figures -->)", re.DOTALL)
WORDS = re.compile(r"<!-- figures: (.+?) -->\n(.*?)(?=<!-- figures|\Z)", re.DOTALL)
ROWS = re.compile(r"^@ (.+?): (\|.*)$", re.MULTILINE)
ELSEWHERE = "device"
"""The report that another machine wrote, which its table names."""
SCALES = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "c": 1e-2, "m": 1e-3, "u": 1e-6, "i": 2**20}
"""Prefixes of units; ``i`` is MiB."""
GOALS = {">=": operator.ge, "<=": operator.le}


class Figures(string.Formatter):
    """``str.format`` with scales, goals and, of a report, load and commit."""

    def format_field(self, value: Any, format_spec: str) -> str:  # noqa: ANN401
        """A figure as the page shows it."""
        if format_spec == "from":
            return _origin(value["machine"])
        shown, *goals = re.split("(?=[<>]=)", format_spec)
        if shown[:1] in SCALES and value is not None:
            scale, shown = SCALES[shown[0]], shown[1:]
            several = isinstance(value, Mapping)
            value = {k: x / scale for k, x in value.items()} if several else value / scale
        turns = value if isinstance(value, Mapping) else {"median": value}
        texts = {name: "none" if x is None else format(x, shown) for name, x in turns.items()}
        notes = [f"{texts['least']} to {texts['most']}"] if "least" in texts else []
        notes += [f"on the clock {texts['wall']}"] if "wall" in texts else []
        for goal in goals:
            meets = {
                GOALS[goal[:2]](x, float(goal[2:])) for name, x in turns.items() if name != "wall"
            }
            verdict = ": not shown" if len(meets) > 1 else "" if True in meets else ": missed"
            notes.append(f"goal {goal[2:]}{verdict}")
        return texts["median"] + (f" ({'; '.join(notes)})" if notes else "")


def _origin(machine: Mapping[str, Any]) -> str:
    return f"load {machine['load']:.1f}, {machine['commit']}"


def pages() -> dict[Path, str]:
    """Every page with figures, as it should be.

    Raises:
        KeyError: A figure that no report has, or a part of a page without words.
        ValueError: Words that no page has a place for, or reports of several machines.
    """
    # In a field [4] is a number.
    measured = json.loads(
        (HERE / "measured.json").read_text(),
        object_hook=lambda found: {int(k) if k.isdigit() else k: v for k, v in found.items()},
    )

    machines = [report["machine"] for name, report in measured.items() if name != ELSEWHERE]
    if len({(each["processor"], each["cores"], each["torch"]) for each in machines}) > 1:
        raise ValueError("the reports are from several machines; the pages name one for all")

    def rows(line: re.Match[str]) -> str:
        keys, row = line.groups()
        pairs = [key.rpartition("=") for key in keys.split("; ")]
        made = [row.replace("LABEL", label or key).replace("KEY", key) for label, _, key in pairs]
        return "\n".join(made)

    def filled(words: str) -> str:
        return Figures().vformat(ROWS.sub(rows, words), (), measured)

    words = dict(WORDS.findall((HERE / "figures.md").read_text()))
    found, placed = {}, set()
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text()
        if names := [name for _, name in PARTS.findall(text)]:
            placed.update(names)
            found[path] = PARTS.sub(lambda part: part[1] + filled(words[part[2]]), text)
    if unplaced := sorted(set(words) - placed):
        raise ValueError(f"figures.md has words for no page: {', '.join(unplaced)}")
    return found


def collect() -> None:
    """Takes what was measured last; reports of benchmarks that did not run stay."""
    kept = HERE / "measured.json"
    reports = json.loads(kept.read_text()) if kept.is_file() else {}
    for path in sorted((ROOT / "build/benchmarks").glob("*.json")):
        reports[path.stem] = json.loads(path.read_text())
    kept.write_text(json.dumps(reports, indent=1, sort_keys=True) + "\n")


def main() -> None:
    """Command line entry."""
    options = argparse.ArgumentParser(description="Writes the pages' figures from measurements.")
    options.add_argument("--collect", action="store_true", help="take build/benchmarks first")
    options.add_argument("--check", action="store_true", help="write nothing; fail if it would")
    asked = options.parse_args()
    if asked.collect:
        collect()
    differ = {path: text for path, text in pages().items() if path.read_text() != text}
    for path, text in differ.items():
        print(f"{path} differs: run benchmarks/page.py" if asked.check else f"wrote {path}")
        if not asked.check:
            path.write_text(text)
    sys.exit(asked.check and bool(differ))


if __name__ == "__main__":
    main()
