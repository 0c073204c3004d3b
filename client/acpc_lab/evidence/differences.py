"""Compares two scores of the same anchors: what differs, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from acpc.contract import TITLES, Columns, Tabular, cell, check, check_score, ends
from acpc_client import (
    CheckpointScore,
    EvidenceOptions,
    Interval,
    Population,
    Record,
    Score,
    ScoreProtocol,
)
from acpc_client.errors import ArgumentError

if TYPE_CHECKING:
    from acpc.evidence import CheckpointSample

_DECIDING = (
    "draws", "seed", "horizon", "quantile", "margin", "weights", "reading", "partner_past",
    "neighbourhood",
)  # fmt: skip


class Difference(Record, eq=True):
    """The difference of one number between two scores.

    Attributes:
        first: Of the first score.
        second: Of the second.
        change: Second minus first; of a ratio, second over first.
        interval: Where the change lies, at the confidence of the comparison.
        even: The change when both are alike: 0, or 1 of a ratio.
    """

    first: float | None
    second: float | None
    change: float
    interval: Interval
    even: float = 0.0

    @property
    def direction(self) -> str:
        """``lower`` or ``higher`` where the interval says so of the second, else ``undecided``."""
        if self.interval.upper < self.even:
            return "lower"
        return "higher" if self.interval.lower > self.even else "undecided"


class ScoreComparison(Tabular, Record):
    """Two scores of the same anchors: the second against the first.

    Attributes:
        first: Name of the first checkpoint.
        second: Name of the second.
        confidence: Of every interval by itself, in (0.5, 1).
        anchors: Anchors that both were measured on.
        trajectories: Trajectories that they were cut from.
        population: What the intervals are of: the dataset's windows, or new trajectories.
        eligible: Anchors that take part in SR.
        ir_raw: Raw IR, lower is better.
        ir_ratio: Raw IR of the second over that of the first.
        ir_relative: IR relative to the reference of both; None where either has none.
        sr: SR, higher is better; None where no anchor takes part.
        notes: Warnings in words.
    """

    first: str
    second: str
    confidence: float
    anchors: int
    trajectories: int
    eligible: int
    ir_raw: Difference
    ir_ratio: Difference
    ir_relative: Difference | None
    sr: Difference | None
    notes: tuple[str, ...] = ()
    population: Population = Population.TRAJECTORIES

    def table(self) -> Columns:
        """A row per number: both values, the change, its interval and what that says."""
        rows = {
            TITLES["ir_relative"]: self.ir_relative,
            TITLES["sr"]: self.sr,
            TITLES["ir_raw"]: self.ir_raw,
            f"{TITLES['ir_raw']}, ratio": self.ir_ratio,
        }
        held = [(name, x) for name, x in rows.items() if x is not None]
        return {
            "number": [name for name, _ in held],
            **{of: [getattr(x, of) for _, x in held] for of in ("first", "second", "change")},
            **{end: [getattr(x.interval, end) for _, x in held] for end in ("lower", "upper")},
            "second is": [x.direction for _, x in held],
        }

    def shown(self) -> Columns:
        """The table, with A and B for the two and both ends of an interval in one column."""
        held = self.table()
        pairs = zip(held["lower"], held["upper"], strict=True)
        return {
            "": held["number"],
            "A": [cell(x, ".3g") for x in held["first"]],
            "B": [cell(x, ".3g") for x in held["second"]],
            "B - A": [cell(x, ".3g") for x in held["change"]],
            f"{100 * self.confidence:g} % interval": [
                " to ".join(ends(*pair, ".3g")) for pair in pairs
            ],
            "B is": held["second is"],
        }

    def meaning(self) -> str:
        """Which is A and which B, and what the numbers are."""
        return (
            f"A: {self.first}; B: {self.second}. IR: how far the shift pushes predictions of most "
            "anchors; lower is better. SR: share of anchors still apart from another state, higher "
            "is better"
        )

    def headline(self) -> str:
        """Words what is sure of the second checkpoint."""
        numbers = {"IR": self.ir_relative or self.ir_raw, "SR": self.sr}
        found = [(name, x.direction) for name, x in numbers.items() if x is not None]
        sure = ", ".join(f"{name} is {way}" for name, way in found if way != "undecided")
        level = f"at {100 * self.confidence:g} % of {self.population.words}"
        return (
            f"{self.second} against {self.first} on {self.anchors} anchors, "
            f"{level}: {sure or 'neither IR nor SR differs for sure'}"
        )


def compare_scores(first: Score, second: Score, options: EvidenceOptions) -> ScoreComparison:
    """Compares ``second`` with ``first``, which was measured on the same anchors in the same way.

    Anchors are paired and trajectories resampled, as the server does for relative IR; see
    docs/statistics.md.

    Args:
        first: The first score.
        second: The second.
        options: Confidence of every interval by itself, resamples and their seed, and of which
            population; where that is open, of that of the first score.

    Raises ArgumentError: They cannot be compared; the message has every reason.
    """
    check(options)
    for name, score in (("a", first), ("b", second)):
        try:
            check_score(score)
        except ArgumentError as error:
            raise ArgumentError(name, f"{error.field}: {error.description}") from error
    if reasons := list(_reasons(first, second)):
        wrong = "these scores cannot be compared: " + "; ".join(reasons)
        raise ArgumentError("b", f"{wrong}. Score both checkpoints in the same way, then compare")
    scored = first.evidence.population if first.evidence else None
    population = options.population or scored or Population.TRAJECTORIES
    options = replace(options, population=population)
    checkpoint, numbers = first.checkpoint, _differences(first, second, options)
    trajectories, notes = len(np.unique(_sample(checkpoint).trajectory)), [*_notes(first, second)]
    dataset = population is Population.DATASET
    drawn = f"{checkpoint.anchors} windows" if dataset else f"{trajectories} trajectories"
    if math.isinf(numbers["ir_raw"].interval.upper):
        notes.append(
            f"{drawn} are too few for intervals: raw IR may lie above all of them; measure more, "
            "or give a lower confidence"
        )
    return ScoreComparison(
        first=checkpoint.checkpoint.name,
        second=second.checkpoint.checkpoint.name,
        confidence=options.confidence,
        anchors=checkpoint.anchors,
        trajectories=trajectories,
        population=population,
        eligible=checkpoint.eligible,
        notes=tuple(notes),
        **numbers,
    )


def _differences(first: Score, second: Score, options: EvidenceOptions) -> dict[str, Any]:
    """Every number of both with its difference; None where there is none."""
    from acpc.evidence import paired_differences  # noqa: PLC0415  loads scipy

    held = first.receipt.parameters["protocol"]
    protocol = ScoreProtocol(quantile=held["quantile"], margin=held["margin"])
    common = None
    if first.reference is not None and second.reference is not None:
        common = _sample(first.reference).radius
    own = _sample(first.checkpoint)
    own = replace(own, windows=first.evidence.windows if first.evidence else None)
    found = paired_differences(own, _sample(second.checkpoint), common, protocol, options)
    sides = [{**vars(score.checkpoint), **vars(score.verdict)} for score in (first, second)]
    return {
        of: change
        and Difference(sides[0].get(of), sides[1].get(of), *change, float(of == "ir_ratio"))
        for of, change in found.items()
    }


def _sample(side: CheckpointScore) -> CheckpointSample:
    """The values of one side, which are known to be there."""
    from acpc.evidence import CheckpointSample  # noqa: PLC0415  loads scipy

    values = side.anchor_values
    assert values is not None  # noqa: S101 - one of the reasons not to compare
    trajectory = values.trajectory_ids
    if trajectory is None:
        trajectory = np.arange(len(values.radius))
    distance = values.different_state_distance
    return CheckpointSample(values.radius, distance, values.partner, trajectory)


def _reasons(first: Score, second: Score) -> Iterator[str]:
    """Why two scores cannot be compared; nothing: they can."""
    receipts = first.receipt, second.receipt
    sides = [score.checkpoint.anchor_values for score in (first, second)]
    held = [side.anchor_values for side in (first.reference, second.reference) if side]
    whole = all(values is not None for values in (*sides, *held))
    if not whole:
        yield "the server left the values per anchor out of one of them"
    yield from _unlike("anchors", *(receipt.anchors_digest for receipt in receipts))
    protocols = [receipt.parameters.get("protocol") or {} for receipt in receipts]
    if not all(protocols):
        yield "one is of a release whose receipt does not name the protocol"
        return
    differ = [name for name in _DECIDING if protocols[0].get(name) != protocols[1].get(name)]
    for name in differ:
        yield from _unlike(name, *(held.get(name) for held in protocols))
    if not {"draws", "seed"} & {*differ}:
        yield from _unlike("shift", *(receipt.perturbation_digest for receipt in receipts))
    references = [receipt.reference_digest for receipt in receipts]
    models = [receipt.reference_model_digest for receipt in receipts]
    if all(references) and (models[0] != models[1] or not all(models)):
        yield from _unlike("reference", *references)
    if whole and receipts[0].anchors_digest == receipts[1].anchors_digest:
        for name in ("anchor_ids", "partner"):
            if not np.array_equal(*(getattr(values, name) for values in sides)):
                yield f"their {name} differ"


def _unlike(what: str, first: object, second: object) -> Iterator[str]:
    if first != second:
        short = [x[:12] if isinstance(x, str) else x for x in (first, second)]
        yield f"{what} of a is {short[0]}, of b {short[1]}"


def _notes(first: Score, second: Score) -> Iterator[str]:
    receipts = first.receipt, second.receipt
    models = [receipt.model_digest for receipt in receipts]
    if receipts[0].checkpoint_digest == receipts[1].checkpoint_digest:
        yield "both are scores of the same checkpoint"
    elif models[0] and models[0] == models[1]:
        yield "both are scores of the same model, whose files were written differently"
    for name in ("numeric_mode", "code_version"):
        found = [str(getattr(receipt, name)) for receipt in receipts]
        if found[0] != found[1]:
            yield f"{name} differs: {found[0]} and {found[1]}; rounding may, too"
    if (first.reference is None) != (second.reference is None):
        yield "one has no reference, so relative IR is not compared"
    if any(score.evidence and score.evidence.looks for score in (first, second)):
        yield "one stopped when it was decided; the intervals do not allow for that"
    values = first.checkpoint.anchor_values
    if values is not None and values.trajectory_ids is None:
        yield "trajectories are not known: anchors are taken for independent"
    kept = [note for score in (first, second) if score.evidence for note in score.evidence.notes]
    yield from dict.fromkeys((*kept, *first.rounding_notes, *second.rounding_notes))
