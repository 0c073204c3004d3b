"""Weighs a score: intervals of its numbers, the verdict they support, and looks as it grows.

**Looks.** The error of a verdict is spent over looks. A wrong "passed" is possible only where the
truth fails, and a wrong "failed" only where it passes, so each has the whole error to itself. What
is spent by a share t of the anchors is alpha t^rho (Kim and DeMets 1987): late, so that the last
look has most of it, and later for passing, which few anchors cannot show. The errors of all looks
add up to alpha, so nothing is assumed of how they depend on each other.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from acpc.contract import (
    MAX_RESAMPLES,
    Doubt,
    Evidence,
    EvidenceOptions,
    Interval,
    Look,
    Outcome,
    Population,
    PopulationEvidence,
    ScoreProtocol,
    Thresholds,
    shared,
)
from acpc.evidence import CheckpointSample, Resampled
from jaxtyping import Float64
from scipy import special

from acpc_server.evidence.confident import ConfidentVerdict, least_drawn
from acpc_server.evidence.exact import all_of, least_p
from acpc_server.evidence.numbers import FEW_PAIRS, Numbers
from acpc_server.numerics import Check, go_on

_FLOORS_IN_DOUBT = 10
FAILING_POWER, PASSING_POWER = 2, 3
SPENDING = (
    f"Kim-DeMets, rho {FAILING_POWER} for failing and {PASSING_POWER} for passing, added over looks"
)
_IN_TAILS = 4
_SHARED = 0.05  # level of the test of draws that all anchors share


def judge(
    checkpoint: CheckpointSample,
    reference: CheckpointSample | None,
    protocol: ScoreProtocol,
    thresholds: Thresholds,
    options: EvidenceOptions,
    check: Check = go_on,
) -> Evidence:
    """Compute the intervals of a score's numbers, and the verdict that they support.

    ``reference`` is the checkpoint's own sample where they are one. ``check`` is called again and
    again; what it raises ends the resampling. FailedPrecondition where the reference's raw IR is 0.
    """
    numbers = Numbers.of(checkpoint, reference, protocol, options, check)
    alpha = 1 - options.confidence
    verdict = ConfidentVerdict(numbers, thresholds, alpha, protocol.quantile)
    outcome, doubt, wanted = *verdict.outcome(), verdict.drawn_to_decide()
    p_passed, p_failed = verdict.p_passed(), verdict.p_failed()
    if checkpoint.shared_draws:
        outcome, doubt, wanted, p_passed, p_failed = Outcome.UNDECIDED, Doubt.DRAWS, None, 1.0, 1.0
    dataset = options.population is Population.DATASET

    def shown(found: Resampled | None) -> Interval | None:
        return None if found is None else found.interval(options.confidence)

    return Evidence(
        confidence=options.confidence,
        ir_raw=numbers.ir_raw.interval(options.confidence),
        reference_ir_raw=shown(numbers.reference_ir_raw),
        ir_relative=shown(numbers.ir_relative),
        sr=numbers.sr.interval(options.confidence),
        reference_sr=shown(numbers.reference_sr),
        score=verdict.score(),
        delta_score=verdict.delta_score(),
        confident_outcome=outcome,
        doubt=doubt,
        anchors_to_decide=wanted if dataset else None,
        trajectories_to_decide=None if dataset else wanted,
        trajectories=len(np.unique(checkpoint.trajectory)),
        unseen=_unseen(numbers, checkpoint.windows, alpha, dataset=dataset),
        population=options.population or Population.TRAJECTORIES,
        windows=checkpoint.windows,
        resamples=options.resamples,
        seed=options.seed,
        p_passed=p_passed,
        p_failed=p_failed,
        notes=tuple(_notes(checkpoint, numbers, protocol.quantile, options)),
    )


def other_population(
    checkpoint: CheckpointSample,
    reference: CheckpointSample | None,
    protocol: ScoreProtocol,
    thresholds: Thresholds,
    options: EvidenceOptions,
    check: Check = go_on,
) -> PopulationEvidence:
    """Judge the same samples as of the population that the options do not name."""
    dataset = options.population is Population.DATASET
    other = Population.TRAJECTORIES if dataset else Population.DATASET
    options = replace(options, population=other)
    found = judge(checkpoint, reference, protocol, thresholds, options, check)
    return PopulationEvidence(**shared(found, PopulationEvidence))


def draws_are_shared(draw_radius: Float64[np.ndarray, "n draws"]) -> bool:
    """Return whether draws of one number do the same to all anchors: their F test, at 5 %."""
    count, draws = draw_radius.shape
    scale = draw_radius.mean(axis=1, keepdims=True)
    if min(count, draws) < 2 or not scale.all():
        return False
    off = draw_radius / scale - 1
    common = off.mean(axis=0)
    left = float(((off - common) ** 2).sum())
    among, within = draws - 1, (draws - 1) * (count - 1)
    if not left:
        return bool(common.any())
    found = count * float((common**2).sum()) / among / (left / within)
    return bool(special.fdtrc(among, within, found) <= _SHARED)


def _unseen(numbers: Numbers, windows: int | None, alpha: float, *, dataset: bool) -> float:
    """Return the upper end, at ``alpha``, of the share of windows that is like none drawn."""
    share = numbers.unseen
    if dataset:
        share = 1 - all_of(numbers.count, numbers.count, windows, len(share))[::-1]
    return float(share[-math.floor(alpha * (len(share) + 1))])


def _notes(
    sample: CheckpointSample, numbers: Numbers, quantile: float, options: EvidenceOptions
) -> list[str]:
    eligible, confidence = int(sample.eligible.sum()), options.confidence
    dataset, found = options.population is Population.DATASET, numbers.count
    notes = []
    if sample.shared_draws:
        notes.append(
            f"all anchors share their {sample.shared_draws} draws, as rendered views do: the "
            "intervals are of these draws alone, and nothing is sure of others; give each draw as "
            "a group of its own to judge it by itself"
        )
    if eligible < FEW_PAIRS:
        notes.append(
            f"SR rests on {eligible} eligible anchors; with fewer than {FEW_PAIRS} its interval "
            "is wide: give more anchors"
        )
    if math.isinf(numbers.ir_raw.upper(1 - confidence)):
        wanted = least_drawn(quantile, 1 - confidence, options.resamples)
        what = "window" if dataset else "trajectory"
        several = "windows" if dataset else "trajectories"
        these = f"one {what}" if found == 1 else f"these {found} {several}"
        more = "measure" if dataset else "draw anchors from"
        notes.append(
            "raw IR has no upper end, relative IR none, SR perhaps no lower one: at "
            f"{100 * confidence:g} % {these} cannot exclude that a share of {1 - quantile:.2g} of "
            "all reacts more" + (f"; {more} {max(wanted, found + 1)} or more" if wanted else "")
        )
    ir_raw = numbers.ir_raw.point
    if sample.rounding_floor and ir_raw <= _FLOORS_IN_DOUBT * sample.rounding_floor:
        notes.append("raw IR is near its rounding floor; the intervals leave rounding out")
    return notes


@dataclass(frozen=True)
class LookResult:
    """Data of one look."""

    look: Look
    options: EvidenceOptions  # at which its evidence contradicts no verdict
    decided: bool  # whether the confident outcome is certain


def take_look(
    weigh: Callable[[EvidenceOptions], Evidence],
    options: EvidenceOptions,
    t_sr: float,
    before: Sequence[Look],
    limit: int,
    *,
    anchors: int,
    eligible: int,
    windows: int | None = None,
) -> LookResult:
    """Judge the ``anchors`` that are measured by now, of ``limit`` at the last look.

    ``weigh`` gives their evidence, where any is ``eligible`` for SR, which follows from the states
    alone. ``options`` have the confidence of the verdict over all looks, and ``before`` are those
    so far. ``windows`` there are; None: not known, or the statement is of trajectories.
    """
    alpha, share = 1 - options.confidence, anchors / limit
    failing = alpha * share**FAILING_POWER - sum(look.failing for look in before)
    passing = alpha * share**PASSING_POWER - sum(look.passing for look in before)
    among = windows and round(eligible * (windows / anchors) ** 2)
    if least_p(eligible, among, t_sr) > passing:  # not even if all of them are separated
        passing = 0.0
    if not eligible:
        return LookResult(Look(anchors, 0, 0.0, 0.0, 1.0, 1.0), options, decided=False)
    resamples = min(max(options.resamples, math.ceil(_IN_TAILS / failing)), MAX_RESAMPLES)
    strict = replace(options, confidence=1 - failing, resamples=resamples)
    found = weigh(strict)
    look = Look(anchors, eligible, passing, failing, found.p_passed, found.p_failed)
    if found.confident_outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE):
        return LookResult(look, strict, decided=True)
    if found.p_passed <= passing:
        able = replace(strict, confidence=1 - passing)
        if weigh(able).confident_outcome is Outcome.PASSED:
            return LookResult(look, able, decided=True)
    return LookResult(look, strict, decided=False)
