"""Sentences of statements about all draws of a perturbation."""

from __future__ import annotations

from collections.abc import Mapping

from acpc.contract import CoverageGoal, CoverageOutcome, CoverageStop, NumericMode, Perturbation

from acpc_server.evidence import CoverageSequence

CHOICES = {"top1": "the winner", "elite": "the elite set"}
WHY = {
    CoverageStop.MAX_DRAWS: "as many draws were made as were allowed",
    CoverageStop.OUT_OF_REACH: "the draws that are allowed can no longer show it",
    CoverageStop.DEADLINE: "there was no time for more draws",
    CoverageStop.BUSY: "the server had no room for more draws",
    CoverageStop.SPENT: "the session has had the pools that share the error, so nothing was drawn",
}


def percent(share: float) -> str:
    """Write a share for people, to five digits."""
    return f"{100 * share:.5g} %"


def assumptions(spec: Perturbation, mode: NumericMode) -> str:
    """Write what a statement takes for granted."""
    return (
        "Assumed: the pool was fixed before these draws were made, the draws are independent, and "
        f"the change is {spec} as the server draws it, on this history. A choice is unchanged when "
        f"this checkpoint, in {mode} arithmetic, makes the same one again. Nothing is said of "
        "other pools, histories or perturbations."
    )


def sentence(
    what: str,
    spec: Perturbation,
    goal: CoverageGoal,
    confidence: float,
    seen: CoverageSequence,
    stop: CoverageStop,
) -> str:
    """Write what the draws show of a choice, one of ``CHOICES``, and why they ended."""
    choice, sure = CHOICES[what], percent(confidence)
    if stop is CoverageStop.EXACT:
        does = "changes" if seen.changed else "leaves"
        rest = "" if seen.changed else " unchanged"
        return f"{spec} is not random: its one view {does} {choice}{rest}, and so does every draw."
    counted = f"{seen.draws} draws, {seen.changed or 'none'} changed it"
    if seen.outcome is CoverageOutcome.HOLDS:
        share = f"at least {percent(goal.coverage)} of all draws of {spec}"
        return f"With {sure} confidence, {share} leave {choice} unchanged ({counted})."
    if seen.outcome is CoverageOutcome.FAILS:
        share = f"fewer than {percent(goal.coverage)} of all draws of {spec}"
        return f"With {sure} confidence, {share} leave {choice} unchanged ({counted})."
    return (
        f"Undecided whether at least {percent(goal.coverage)} of all draws of {spec} leave "
        f"{choice} unchanged ({counted}): {WHY[stop]}. With {sure} confidence at least "
        f"{percent(seen.lower)} do."
    )


def about_step(
    pools: int, spec: Perturbation, goal: CoverageGoal, outcomes: Mapping[str, CoverageOutcome]
) -> str:
    """Write what the pools of a session so far show of each choice together."""
    held, others = (
        " and ".join(
            choice
            for what, choice in CHOICES.items()
            if what in outcomes and (outcomes[what] is CoverageOutcome.HOLDS) is wanted
        )
        for wanted in (True, False)
    )
    share = f"at least {percent(goal.coverage)} of all draws of {spec}"
    words = f"With {percent(goal.confidence)} confidence, {share} leave {held} unchanged in every"
    parts = [f"{words} pool of the session so far ({pools})."] if held else []
    parts += [f"Not shown of {others} in every pool so far ({pools})."] if others else []
    return " ".join(parts)
