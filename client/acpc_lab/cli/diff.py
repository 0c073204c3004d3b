"""``acpc diff``."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer
from acpc.contract import cell, ends
from acpc_client import (
    RESULT_FORMATS,
    AcpcClient,
    EvidenceOptions,
    Outcome,
    Score,
    load_result,
)
from acpc_client.errors import ArgumentError

from acpc_lab.cli import render
from acpc_lab.cli.command import Keys, given
from acpc_lab.cli.gates import Case, JunitOption, settle
from acpc_lab.cli.options import Followed, Population, Server, job_name
from acpc_lab.cli.protocol import SettingsOption, keys_of, read_protocol
from acpc_lab.evidence import ScoreComparison, compare_scores

_MEANING = (
    "IR: how far the shift pushes predictions of most anchors; lower is better",
    "SR: share of anchors still apart from another state, higher is better",
)


class Diff(Followed, Server):
    """Compares two checkpoints that were scored on the same anchors.

    Prints IR and SR of both, B minus A, and where that difference lies at the confidence asked
    for. Anchors are paired, so that what makes some of them hard for both cancels: a difference
    can be sure although the intervals of the two scores overlap. Scores of other anchors, another
    shift, protocol or reference are refused, with every reason. No server is asked for files.

    **Examples**

        acpc diff before.json after.json
        acpc diff 5f0c9a 77aa02 --protocol '{confidence: 0.99}'

    A release can stop where the new checkpoint may be worse than the deployed one: exit 3 where it
    surely is, 5 where the intervals allow either.

        acpc diff deployed.json candidate.json --gate no-worse || exit 1

    Attributes:
        first: A score: a file of `--out`, or a job, by operations/ID or its ID.
        second: The score that is compared with A, named likewise.
        gate: no-worse: exit with 3 where B is surely worse than A, 5 undecided.
    """

    keys: ClassVar[Keys] = keys_of(EvidenceOptions, ("confidence", "resamples", "seed"))

    first: Annotated[str, typer.Argument(metavar="A")]
    second: Annotated[str, typer.Argument(metavar="B")]
    gate: Literal["no-worse"] | None = None
    junit: JunitOption = None
    population: Population = None
    protocol: SettingsOption = None

    def __call__(self) -> None:
        asked = read_protocol(self.protocol, self.keys) | given(population=self.population)
        with self.connect() as client:
            first, second = (_read(name, client) for name in (self.first, self.second))
            try:
                found = compare_scores(first, second, EvidenceOptions(**asked))
            except ArgumentError as error:  # names a file as it was given
                of = {"a": self.first, "b": self.second}.get(error.field, "")
                wrong = f"{of}: {error.description}" if ": found" in error.description else ""
                raise ArgumentError(error.field, wrong or error.description) from error
        self.answer(found, lambda: _show(found))
        if self.gate is None:
            return
        outcome = no_worse(found)
        cases = [Case(found.second, outcome, found.headline())]
        code = settle("acpc diff", cases, self.junit)
        if outcome is Outcome.FAILED:
            render.note(f"{found.second} is surely worse than {found.first}")
        if outcome is Outcome.UNDECIDED:
            render.note(f"undecided: {found.second} may be worse than {found.first}, or may not")
        raise typer.Exit(code)


def no_worse(found: ScoreComparison) -> Outcome:
    """Whether the second score is no worse than the first: surely so, surely not, or undecided."""
    error, rate = found.ir_relative or found.ir_raw, found.sr
    if error.direction == "higher" or (rate is not None and rate.direction == "lower"):
        return Outcome.FAILED
    kept = rate is not None and rate.interval.lower >= rate.even
    return Outcome.PASSED if kept and error.interval.upper <= error.even else Outcome.UNDECIDED


def _read(text: str, client: AcpcClient) -> Score:
    path = Path(text)
    if not (path.suffix in RESULT_FORMATS or path.is_file()):
        return client.operations.get(job_name(text)).result()
    held = load_result(path)
    if not isinstance(held.answer, Score):
        raise ArgumentError(text, f"found a {held.kind}, wanted a score")
    return held.answer


def _show(found: ScoreComparison) -> None:
    """Print what is sure, then a row per number, and what they mean."""
    render.prose(found.headline())
    render.prose(f"A: {found.first}")
    render.prose(f"B: {found.second}")
    table = found.table()
    numbers = [[cell(x, ".3g") for x in table[of]] for of in ("first", "second", "change")]
    pairs = zip(table["lower"], table["upper"], strict=True)
    intervals = [" to ".join(ends(*pair, ".3g")) for pair in pairs]
    titles = ["", "A", "B", "B - A", f"{100 * found.confidence:g} % interval", "B is"]
    rows = zip(table["number"], *numbers, intervals, table["second is"], strict=True)
    render.table(titles, list(rows))
    for sentence in _MEANING:
        render.prose(sentence)
    render.notes(found.notes)
