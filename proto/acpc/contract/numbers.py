"""Declares each number of a score once: for terminals, files, reports, trackers and Prometheus."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

Group = IntEnum("Group", "SCREEN MEASURED ANCHORS")
"""What a number is about: people read numbers in this order, files have them as declared."""
Place = IntEnum("Place", "NONE WIDE FIRST")
"""Whether a table has a number: not at all; with ``-o wide``, or behind the others; always."""


class Gauge(NamedTuple):
    """The Prometheus series ``acpc_verdict_*`` that keeps a number of the newest verdict."""

    name: str
    text: str
    by_shift: bool = True  # of each shift, or once of a checkpoint


class Number(NamedTuple):
    """A number of a score, and where it is found and shown."""

    name: str  # of the attribute, and of the column in files and data frames
    title: str = ""  # what people read; empty: files alone have it
    spec: str = ""  # format for people
    hint: str = ""  # what it means, where the title does not say it
    wanted: str = ""  # by the screen, whose thresholds are ``ir`` and ``sr``
    of: str = "checkpoint"  # the part of a score that has it; or "verdict"
    group: Group = Group.MEASURED
    rare: bool = False  # whether the table of one score has it with ``-o wide`` alone
    listing: Place = Place.NONE  # in a table with a row for each score
    report: Place = Place.WIDE  # in the report's table of verdicts
    paired: bool = False  # whether files hold the reference's, too
    tracked: bool = False  # whether ``Score.metrics()`` has it, with its interval
    gauge: Gauge | None = None


NUMBERS = {number.name: number for number in (
    Number("ir_raw", "raw IR", ".3f", paired=True, tracked=True),
    Number("rounding_floor", "rounding floor", ".1g",
           "below it raw IR has fewer than two digits", rare=True, paired=True),
    Number("ir_relative", "relative IR", ".3f", wanted="at most {ir:g}", of="verdict",
           group=Group.SCREEN, listing=Place.FIRST, report=Place.FIRST, tracked=True, gauge=Gauge(
               "acpc_verdict_relative_ir",
               "IR relative to the reference, of the newest verdict under a perturbation.")),
    Number("sr", "SR", ".3f", wanted="at least {sr:g}", group=Group.SCREEN, listing=Place.FIRST,
           report=Place.FIRST, paired=True, tracked=True, gauge=Gauge(
               "acpc_verdict_sr",
               "SR of the newest verdict on a checkpoint under a perturbation.")),
    Number("score", "S", "+.2f", wanted="at least 0", of="verdict", group=Group.SCREEN,
           report=Place.FIRST, tracked=True),
    Number("delta_score", "delta S", "+.2f", of="verdict", group=Group.SCREEN, rare=True),
    Number("skill", "skill", ".2f", "error of clean predictions over that of standing still",
           wanted="below 1", listing=Place.WIDE, report=Place.FIRST, tracked=True, gauge=Gauge(
               "acpc_verdict_skill",
               "Clean prediction error over that of standing still, of the newest verdict on a "
               "checkpoint: 1 and above predicts nothing.", by_shift=False)),
    Number("anchors", "anchors", group=Group.ANCHORS, report=Place.NONE),
    Number("eligible", "eligible", "d", "anchors that count for SR, of all",
           group=Group.ANCHORS, rare=True),
    Number("skipped", group=Group.ANCHORS, report=Place.NONE),
    Number("median_latent_distance", "latent distance", ".3g",
           "median latent distance; near zero: collapse", group=Group.ANCHORS),
    Number("different_label_distance", group=Group.ANCHORS, report=Place.NONE),
)}  # fmt: skip
"""Every number of a score by its name."""
TITLES = {
    number.name: number.title
    for number in sorted(NUMBERS.values(), key=lambda number: number.group)
    if number.title
}
"""What people read for a score's numbers: in its table, in comparisons, limits and sweeps."""
