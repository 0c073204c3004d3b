"""Lists the studies by name: what each asks, and what it is computed from."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np
from acpc.contract import Record
from acpc_client import Result
from acpc_client.errors import ArgumentError

from acpc_lab.studies import (
    collapse,
    drift,
    geometry,
    horizons,
    planner,
    sensitivity,
    shifts,
    thresholds,
)
from acpc_lab.studies.base import Parameters
from acpc_lab.studies.shifts import ShiftRows
from acpc_lab.studies.threshold_summary import ThresholdSummary
from acpc_lab.tables import Arrays, Rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Loaded to draw; the figures know this module.
_FIGURES = "acpc_lab.studies.figures"


@dataclass(frozen=True)
class Study:
    """One of the paper's studies."""

    name: str
    question: str
    rows: type[Rows]
    parameters: type[Parameters]
    summarise: Callable[[Any, Any, Arrays], Record]


@dataclass(frozen=True)
class Evidence:
    """A study that has been made: its rows and what follows from them.

    Attributes:
        arrays: Representations and the like beside the rows; often none.
    """

    study: Study
    rows: Any
    parameters: Any
    arrays: Arrays
    summary: Any

    @classmethod
    def of(
        cls,
        study: Study,
        rows: Rows,
        parameters: Parameters | None = None,
        arrays: Arrays | None = None,
    ) -> Evidence:
        """Computes the summary; no parameters mean the paper's.

        Raises ArgumentError: The rows cannot answer the question.
        """
        chosen = parameters or study.parameters()
        summary = study.summarise(rows, chosen, arrays or {})
        return cls(study, rows, chosen, arrays or {}, summary)

    def result(self, sources: Sequence[Mapping[str, Any]] = ()) -> Result:
        """The summary with what it was computed from, as ``acpc_client.save_result`` takes it."""
        parameters = self.parameters.to_dict()
        asked = {"study": self.study.name, "parameters": parameters, "sources": list(sources)}
        return Result("study_summary", self.summary.to_dict(), asked)

    def figures(self) -> Mapping[str, Figure]:
        """The figures by name; open a ``styled`` context to draw and to save them.

        Raises FailedPrecondition: matplotlib or scikit-learn is not installed.
        """
        drawn: Mapping[str, Figure] = importlib.import_module(_FIGURES).DRAW[self.study.name](self)
        return drawn


def _study(name: str, question: str, summarise: Callable[[Any, Any, Arrays], Record]) -> Study:
    """A study; what it takes as rows and parameters, the hints of ``summarise`` say."""
    hints = get_type_hints(summarise)
    return Study(name, question, hints["rows"], hints["parameters"], summarise)


_LISTED = (
    _study(
        "thresholds",
        "Do thresholds chosen on some tasks find the recovered checkpoints of others?",
        thresholds.summarise,
    ),
    _study(
        "shifts",
        "Does the change of the screen score agree with the change in behaviour?",
        shifts.summarise,
    ),
    _study(
        "drift",
        "Does ACPC tell how far a perturbation changes the prediction error?",
        drift.summarise,
    ),
    _study(
        "planner", "Does ACPC reflect what a changed plan costs the clean model?", planner.summarise
    ),
    _study(
        "geometry",
        "Do perturbed views of one history overlap with other histories?",
        geometry.summarise,
    ),
    _study(
        "sensitivity",
        "How strongly do encoder and rollout amplify small noise?",
        sensitivity.summarise,
    ),
    _study("horizons", "Does IR fall whatever the horizon and the quantile?", horizons.summarise),
    _study(
        "collapse",
        "Does SR expose a collapsed representation that raw IR prefers?",
        collapse.summarise,
    ),
)
STUDIES: dict[str, Study] = {study.name: study for study in _LISTED}


def chosen_elsewhere(rows: ShiftRows, evidence: Evidence) -> ShiftRows:
    """The rows with the thresholds that were chosen on all tasks but each row's own.

    Those of the row's model family; a row that names none takes those of the only family. Raises
    ArgumentError: It is no threshold study, or it lacks a family or task of the rows.
    """
    summary = evidence.summary
    if not isinstance(summary, ThresholdSummary):
        raise ArgumentError(
            "thresholds", f"come from a threshold study; this is a study of {evidence.study.name}"
        )
    chosen = {(s.family, s.test): (s.t_ir, s.t_sr) for s in summary.splits if len(s.test) == 1}
    alone = summary.families[0].family if len(summary.families) == 1 else ""
    asked = [
        (family or alone, (task,))
        for family, task in zip(rows.family.tolist(), rows.task.tolist(), strict=True)
    ]
    for key in asked:
        if key not in chosen:
            known = ", ".join(f"{family} {test[0]}".strip() for family, test in chosen)
            found = f"{key[0]} {key[1][0]}".strip()
            raise ArgumentError("task", f"found {found}, where the threshold study has {known}")
    pairs = np.array([chosen[key] for key in asked])  # (rows, 2)
    return dataclasses.replace(rows, t_ir=pairs[:, 0], t_sr=pairs[:, 1])
