"""Local sensitivity: how strongly do encoder and rollout amplify small noise?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from acpc.contract import Record, SensitivityStudy
from acpc_client.errors import ArgumentError

from acpc_lab.studies.base import LevelRows, Parameters, Study
from acpc_lab.studies.figures import CHECKPOINT, Listing
from acpc_lab.studies.measuring import Ask
from acpc_lab.tables import Arrays, Integers, Numbers, column

METHODS = ("jvp", "finite_difference")


class SensitivityRows(LevelRows):
    """A row per anchor, method and probe of one checkpoint."""

    anchor: Integers = column("identity of the anchor")
    method: Integers = column("0: Jacobian-vector product, 1: finite difference", 0, 1)
    probe: Integers = column("number of the probe", low=0)
    squared_norm: Numbers = column("estimate of the squared Frobenius norm", low=0)


class Sensitivity(Record):
    """One checkpoint by one method: the squared Frobenius norm of the composed Jacobian.

    The mean over anchors of the mean over probes. Its error, over anchors, holds the noise of the
    probes; NaN for one anchor.
    """

    task: str
    run: str
    level: float
    method: str
    anchors: int
    probes: int
    mean: float
    standard_error: float


class SensitivityRatio(Record):
    """An augmented checkpoint over the unaugmented one of its task and run.

    The error is over anchors, which both share; NaN for one anchor.
    """

    task: str
    run: str
    level: float
    method: str
    ratio: float
    standard_error: float


class SensitivitySummary(Record):
    """The answer of the sensitivity study."""

    checkpoints: tuple[Sensitivity, ...]
    ratios: tuple[SensitivityRatio, ...]


def summarise(rows: SensitivityRows, parameters: Parameters, arrays: Arrays) -> SensitivitySummary:
    """Appendix "Local Sensitivity under Gaussian Noise" in the paper.

    Raises ArgumentError: A row is there twice, anchors differ in their number of probes, or a
    checkpoint and its reference have other anchors, or the reference is not sensitive.
    """
    rows.require_unique("task", "run", "level", "method", "anchor", "probe")
    checkpoints, ratios = [], []
    values: dict[tuple[Any, ...], dict[int, float]] = {}
    for (task, run, level, method), cell in rows.by("task", "run", "level", "method"):
        anchors = {anchor: held.squared_norm for (anchor,), held in cell.by("anchor")}
        probes = set(map(len, anchors.values()))
        if len(probes) > 1:
            found = f"have between {min(probes)} and {max(probes)} probes, wanted one number"
            raise ArgumentError("probe", f"{task}, run {run}, level {level:g}: anchors {found}")
        named = (task, run, level, METHODS[method])
        values[named] = {anchor: float(held.mean()) for anchor, held in anchors.items()}
        sample = np.array(list(values[named].values()))
        numbers = (len(sample), probes.pop(), float(sample.mean()), standard_error(sample))
        checkpoints.append(Sensitivity(*named, *numbers))
    for named, means in values.items():
        reference = values.get((*named[:2], 0.0, named[3]))
        if named[2] > 0 and reference:
            ratios.append(SensitivityRatio(*named, *_ratio(named, means, reference)))
    return SensitivitySummary(tuple(checkpoints), tuple(ratios))


def standard_error(sample: Numbers) -> float:
    """Standard error of the mean of independent values; NaN for one value."""
    count = len(sample)
    return float(sample.std(ddof=1)) / math.sqrt(count) if count > 1 else math.nan


def _ratio(
    named: tuple[Any, ...], means: dict[int, float], reference: dict[int, float]
) -> tuple[float, float]:
    """The ratio of the means over anchors, and its standard error."""
    where = f"{named[0]}, run {named[1]}"
    if means.keys() != reference.keys():
        wrong = "and the reference have other anchors; a ratio needs the same ones"
        raise ArgumentError("anchor", f"{where}: level {named[2]:g} {wrong}")
    below = np.array([reference[anchor] for anchor in means])
    above = np.array(list(means.values()))
    if not below.mean() > 0:
        wrong = f"{where}: is 0 throughout for the reference, so there is no ratio"
        raise ArgumentError("squared_norm", wrong)
    ratio = float(above.mean() / below.mean())
    # The ratio estimator of paired samples: its error to first order is that of above - R below.
    return ratio, standard_error(above - ratio * below) / float(below.mean())


def shown(summary: SensitivitySummary) -> Iterator[str | Listing]:
    """The norm of every checkpoint, and the ratios to the unaugmented one."""
    named = (*CHECKPOINT, ("method", lambda item: item.method.replace("_", " ")))
    error = ("standard error", "standard_error")
    norm = ("squared norm", "mean", ".4g")
    yield Listing(summary.checkpoints, (*named, norm, (*error, ".2g")), "checkpoints", 4)
    if summary.ratios:
        ratio = ("over the unaugmented one", "ratio", ".4f")
        yield Listing(summary.ratios, (*named, ratio, (*error, ".4f")), "ratios", 4)


STUDY = Study(
    "sensitivity",
    "How strongly do encoder and rollout amplify small noise?",
    summarise,
    shown,
    "by both methods the augmented checkpoint is less sensitive in every task; no number "
    "is printed",
    ("acpc study run sensitivity --checkpoints pair.csv --out sensitivity/",),
    Ask(SensitivityStudy()),
)
