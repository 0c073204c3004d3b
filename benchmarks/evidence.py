"""How right the evidence is: intervals, sequential jobs, certificates, on worlds of known truth.

    python benchmarks/evidence.py intervals [--experiments 2000] [--out FILE]

A study NAME is the function ``report`` of the module ``evidence_NAME`` beside this one; its
arguments are the options.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pathlib import Path

from common import parser, publish

STUDIES = sorted(
    path.stem.removeprefix("evidence_") for path in Path(__file__).parent.glob("evidence_*.py")
)


def main() -> None:
    """Command line entry."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in STUDIES:
        raise SystemExit(f"name a study: {', '.join(STUDIES)}")
    module = import_module(f"evidence_{name}")
    options = parser(module.__doc__, f"evidence_{name}")
    arguments = inspect.signature(module.report, eval_str=True).parameters.values()
    for argument in arguments:
        default = None if argument.default is argument.empty else argument.default
        options.add_argument(
            f"--{argument.name.replace('_', '-')}",
            type=argument.annotation,
            default=default,
            required=argument.default is argument.empty,
        )
    asked = vars(options.parse_args(sys.argv[2:]))
    out = asked.pop("out")
    publish(module.report(**asked), out)


if __name__ == "__main__":
    main()
