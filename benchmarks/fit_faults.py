"""Whether a misfit is found and named: eight faults and fitting runs on the demo's worlds.

As `acpc check-fit` measures it, by the server's own functions, without its batches.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from acpc.contract import Fit, FitOutcome
from common import CHECKPOINTS, WORLD, run
from fit_world import FAULTS, FitWorld

SEED = 52_000
FITTING = ("two-room-base", "two-room-augmented")


def _fitting(bench: FitWorld, runs: int) -> Iterator[FitOutcome]:
    names = list(bench.models)
    for number in range(runs):
        world = number // len(names)
        if not number % len(names):
            bench.write("fitting", SEED + 10 * world)
        yield bench.fit(names[number % len(names)], "fitting", number).outcome


def _named(found: Fit, cause: str) -> bool:
    """Whether the first that is named is the cause, or none is where it is none of them."""
    sure = [one.name for one in found.causes if one.sure]
    return found.outcome is FitOutcome.DOES_NOT_FIT and (sure or [""])[0] == cause


def measure(
    fitting: int = 200, worlds: int = 2, episodes: int = 120, anchors: int = 64
) -> dict[str, Any]:
    """Every fault on ``worlds`` worlds of each checkpoint, and so many runs without a fault."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = [CHECKPOINTS / name for name in FITTING]
        checkpoints += sorted((WORLD / "sweep").iterdir())
        bench = FitWorld(Path(folder), checkpoints, episodes=episodes, anchors=anchors)
        faults: dict[str, Any] = {}
        for title, fault in FAULTS.items():
            found = []
            for world in range(worlds):
                bench.write("fault", SEED + 5 + 10 * world, fault)
                found += [bench.fit(name, "fault", world) for name in bench.models]
            outcomes = [one.outcome is FitOutcome.DOES_NOT_FIT for one in found]
            faults[title] = {
                "runs": len(found),
                "detected": sum(outcomes),
                "named": sum(_named(one, fault.cause) for one in found),
                "fits": sum(one.outcome is FitOutcome.FITS for one in found),
                "skill": [round(one.skill, 2) for one in found],
            }
        counted = Counter(str(outcome) for outcome in _fitting(bench, fitting))
    return {"anchors": anchors, "faults": faults, "fitting": dict(counted)}


if __name__ == "__main__":
    run(measure)
