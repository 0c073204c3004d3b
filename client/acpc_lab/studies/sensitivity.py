"""Local sensitivity: how strongly do encoder and rollout amplify small noise?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from acpc.contract import Record
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import Parameters
from acpc_lab.tables import Arrays, Column, Integers, Numbers, Rows, Texts, groups

METHODS = ("jvp", "finite_difference")


@dataclass(frozen=True, eq=False)
class SensitivityRows(Rows):
    """A row per anchor, method and probe of one checkpoint."""

    task: Annotated[Texts, Column("task")]
    run: Annotated[Texts, Column("training run, for example its seed")]
    level: Annotated[Numbers, Column("augmentation level; 0: the unaugmented reference", low=0)]
    anchor: Annotated[Integers, Column("identity of the anchor")]
    method: Annotated[
        Integers, Column("0: Jacobian-vector product, 1: finite difference", low=0, high=1)
    ]
    probe: Annotated[Integers, Column("number of the probe", low=0)]
    squared_norm: Annotated[Numbers, Column("estimate of the squared Frobenius norm", low=0)]


@dataclass(frozen=True)
class SensitivityParameters(Parameters):
    """There are none."""


@dataclass(frozen=True, repr=False, eq=False)
class Sensitivity(Record):
    """One checkpoint by one method: the squared Frobenius norm of the composed Jacobian.

    Attributes:
        mean: Over anchors, each the mean of its probes.
        standard_error: Of that mean, over anchors; it holds the noise of the probes. NaN for one
            anchor.
    """

    task: str
    run: str
    level: float
    method: str
    anchors: int
    probes: int
    mean: float
    standard_error: float


@dataclass(frozen=True, repr=False, eq=False)
class SensitivityRatio(Record):
    """An augmented checkpoint over the unaugmented one of its task and run.

    Attributes:
        ratio: Of the means; below one: augmentation lowers the sensitivity.
        standard_error: Over anchors, which both checkpoints share. NaN for one anchor.
    """

    task: str
    run: str
    level: float
    method: str
    ratio: float
    standard_error: float


@dataclass(frozen=True, repr=False, eq=False)
class SensitivitySummary(Record):
    """The answer of the sensitivity study."""

    checkpoints: tuple[Sensitivity, ...]
    ratios: tuple[SensitivityRatio, ...]


def summarise(
    rows: SensitivityRows, parameters: SensitivityParameters, arrays: Arrays
) -> SensitivitySummary:
    """Appendix "Local Sensitivity under Gaussian Noise" in the paper.

    Raises ArgumentError: A row is there twice, anchors differ in their number of probes, or a
    checkpoint and its reference have other anchors, or the reference is not sensitive.
    """
    rows.require_unique("task", "run", "level", "method", "anchor", "probe")
    checkpoints: list[Sensitivity] = []
    values: dict[tuple[str, str, float, str], dict[int, float]] = {}
    keys = (rows.task.tolist(), rows.run.tolist(), rows.level.tolist(), rows.method.tolist())
    for (task, run, level, method), held in groups(*keys).items():
        cell = rows.where(held)
        anchors = groups(cell.anchor.tolist())
        probes = {len(probe) for probe in anchors.values()}
        if len(probes) > 1:
            raise ArgumentError(
                "probe",
                f"{task}, run {run}, level {level:g}: anchors have between {min(probes)} "
                f"and {max(probes)} probes, wanted one number",
            )
        name = METHODS[method]
        means = {anchor: float(cell.squared_norm[i].mean()) for (anchor,), i in anchors.items()}
        values[task, run, level, name] = means
        sample = np.array(list(means.values()))
        checkpoints.append(
            Sensitivity(
                task=task,
                run=run,
                level=level,
                method=name,
                anchors=len(sample),
                probes=probes.pop(),
                mean=float(sample.mean()),
                standard_error=standard_error(sample),
            )
        )
    ratios = [
        _ratio(task, run, level, method, means, values[task, run, 0.0, method])
        for (task, run, level, method), means in values.items()
        if level > 0 and (task, run, 0.0, method) in values
    ]
    return SensitivitySummary(tuple(checkpoints), tuple(ratios))


def standard_error(sample: Numbers) -> float:
    """Of the mean of independent values; NaN for one value."""
    count = len(sample)
    return float(sample.std(ddof=1)) / math.sqrt(count) if count > 1 else math.nan


def _ratio(
    task: str,
    run: str,
    level: float,
    method: str,
    means: dict[int, float],
    reference: dict[int, float],
) -> SensitivityRatio:
    if means.keys() != reference.keys():
        raise ArgumentError(
            "anchor",
            f"{task}, run {run}: level {level:g} and the reference have other anchors; "
            "a ratio needs the same ones",
        )
    below = np.array([reference[anchor] for anchor in means])
    above = np.array(list(means.values()))
    if not below.mean() > 0:
        raise ArgumentError(
            "squared_norm",
            f"{task}, run {run}: is 0 throughout for the reference, so there is no ratio",
        )
    ratio = float(above.mean() / below.mean())
    # The ratio estimator of paired samples: its error to first order is that of above - R below.
    error = standard_error(above - ratio * below) / float(below.mean())
    return SensitivityRatio(task, run, level, method, ratio, error)
