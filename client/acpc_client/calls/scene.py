"""What the diagnostics share: the views of a history, and what a planner starts from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from acpc.contract import (
    ArgumentError,
    Array,
    CheckpointRef,
    CostReduction,
    Perturbation,
    PerturbationSet,
    Views,
    VisualChange,
)

from acpc_client.calls.base import common
from acpc_client.calls.options import CertifyOptions, PlannerOptions, ViewOptions


def views(options: ViewOptions) -> Views:
    """The other views of a history.

    Raises:
        ArgumentError: Both or neither of perturbations and views, or something else.
    """
    given: Any = options.get("perturbations")
    specs = () if given is None else perturbations(given)
    own = options.get("views")
    if bool(specs) == (own is not None):
        found = "both" if specs else "neither"
        raise ArgumentError("perturbations", f"found {found}, wanted perturbations or views")
    if own is not None:
        return own
    return PerturbationSet(
        specs, options.get("draws", 1), options.get("seed", 0), options.get("anchor", 0)
    )


def perturbations(given: Any) -> tuple[Perturbation, ...]:  # noqa: ANN401 - checked here
    """One or several perturbations as a tuple; raises ArgumentError for anything else."""
    several = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    return tuple(
        only_perturbation(spec, "perturbations") for spec in (given if several else (given,))
    )


def only_perturbation(given: object, name: str) -> Perturbation:
    """``given`` itself; raises ArgumentError, which names the argument, when it is none."""
    if not isinstance(given, VisualChange):
        raise ArgumentError(
            name, f"found {given!r:.80}, wanted a perturbation, for example GaussianNoise(0.08)"
        )
    checked: Perturbation = given  # type: ignore[assignment]
    return checked


def moment(
    checkpoint: str | CheckpointRef,
    history: Array,
    goal: Array,
    options: PlannerOptions,
) -> dict[str, Any]:
    """What every request about a planner has; raises as ``views``."""
    return {
        **common(checkpoint, options),
        "history": history,
        "goal": goal,
        "views": views(options),
        "proprio": options.get("proprio"),
        "goal_proprio": options.get("goal_proprio"),
        "past_blocks": options.get("past_blocks"),
        "cost_reduction": options.get("cost_reduction", CostReduction.SERVER_DEFAULT),
        "endpoint_tolerance": options.get("endpoint_tolerance", 0.0),
        "objective": options.get("objective"),
    }


def selection(options: CertifyOptions) -> dict[str, Any]:
    """What is certified of a pool."""
    return {
        "elite_count": options.get("elite_count", 0),
        "weights": options.get("weights", ()),
        "coverage_goal": options.get("coverage_goal"),
        "kept_elites": options.get("kept_elites", 0),
        "temperature": options.get("temperature"),
    }


def said_of_candidates(
    candidates: Array, offsets: Array | None, infeasible: Array | None
) -> dict[str, Any]:
    """A pool with what is known of each candidate.

    Raises:
        ArgumentError: The mask is none of bools, one for each candidate.
    """
    mask = None if infeasible is None else np.asarray(infeasible)
    if mask is not None and (mask.dtype != bool or mask.shape != np.shape(candidates)[:1]):
        found = f"found {mask.dtype} {list(mask.shape)}"
        raise ArgumentError("infeasible", f"{found}, wanted bool, one for each candidate")
    indices = () if mask is None else tuple(np.flatnonzero(mask).tolist())
    return {"candidates": candidates, "offsets": offsets, "infeasible": indices}
