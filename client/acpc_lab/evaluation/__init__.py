"""Closed-loop evaluation: what a planner achieves through a checkpoint, as rows for the studies.

A world is plugged in as a ``ClosedLoop``. ``evaluate_all`` runs it for every checkpoint and shift,
and ``sweep_rows`` and ``shift_rows`` put its successes beside IR and SR, as the threshold and the
cross-shift study take them. docs/studies/closed-loop.md shows it.
"""

from acpc_lab.evaluation.closed_loop import (
    ClosedLoop,
    SuccessRows,
    evaluate_all,
    shift_rows,
    sweep_rows,
)

__all__ = ["ClosedLoop", "SuccessRows", "evaluate_all", "shift_rows", "sweep_rows"]
