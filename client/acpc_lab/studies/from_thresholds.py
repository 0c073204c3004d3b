"""Thresholds of a threshold study, put beside the rows of a cross-shift comparison."""

from __future__ import annotations

import dataclasses

import numpy as np
from acpc_client.errors import ArgumentError

from acpc_lab.studies.catalogue import AnyEvidence
from acpc_lab.studies.shifts import ShiftRows
from acpc_lab.studies.threshold_summary import ThresholdSummary


def chosen_elsewhere(rows: ShiftRows, evidence: AnyEvidence) -> ShiftRows:
    """The rows with the thresholds that were chosen on all tasks but each row's own.

    Raises:
        ArgumentError: It is no threshold study, or it lacks a task of the rows.
    """
    summary = evidence.summary
    if not isinstance(summary, ThresholdSummary):
        raise ArgumentError(
            "thresholds", f"come from a threshold study; this is a study of {evidence.study.name}"
        )
    chosen = {split.test: (split.t_ir, split.t_sr) for split in summary.splits}
    missing = sorted({task for task in rows.task.tolist() if (task,) not in chosen})
    if missing:
        known = ", ".join(task for test in chosen if len(test) == 1 for task in test)
        raise ArgumentError("task", f"found {missing[0]}, where the threshold study has {known}")
    pairs = np.array([chosen[task,] for task in rows.task.tolist()])  # (rows, 2)
    return dataclasses.replace(rows, t_ir=pairs[:, 0], t_sr=pairs[:, 1])
