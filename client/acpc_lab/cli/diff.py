"""``acpc diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from acpc.contract import cell, ends
from acpc_client import RESULT_FORMATS, AcpcClient, EvidenceOptions, ScoreComparison, load_result
from acpc_client.errors import ArgumentError

from acpc_lab.cli import render
from acpc_lab.cli.operations import full_name
from acpc_lab.cli.options import AnswerOptions, Server, given
from acpc_lab.cli.parameters import sets

_LOWER_IS_BETTER = "IR: how far the shift pushes predictions of most anchors; lower is better"
_HIGHER_IS_BETTER = "SR: share of anchors still apart from another state, higher is better"


def diff(
    *,
    first: Annotated[
        str, typer.Argument(metavar="A", help="A score: its file, operations/ID, or the ID alone.")
    ],
    second: Annotated[
        str, typer.Argument(metavar="B", help="The score that is compared with A, named likewise.")
    ],
    confidence: Annotated[float | None, sets(EvidenceOptions, "confidence")] = None,
    resamples: Annotated[int | None, sets(EvidenceOptions, "resamples")] = None,
    evidence_seed: Annotated[int | None, sets(EvidenceOptions, "seed", "--evidence-seed")] = None,
    population: Annotated[Any, sets(EvidenceOptions, "population")] = None,  # noqa: ANN401
    server: Server,
    form: AnswerOptions,
) -> None:
    """Compare two checkpoints that were scored on the same anchors.

    Prints IR and SR of both, B minus A, and where that difference lies at the confidence asked
    for. Anchors are paired, so that what makes some of them hard for both cancels: a difference
    can be sure although the intervals of the two scores overlap. Scores of other anchors, another
    shift, protocol or reference are refused, with every reason.

    Files are those of `acpc score --output` and `acpc operations download`; no server is asked for
    them.

    **Examples**

        acpc diff before.json after.json
        acpc diff operations/5f0c9a operations/77aa02 --confidence 0.99
        acpc diff baseline.npz 77aa02 --json

    **Exit codes**: 0 compared, whatever came out; 1 the server rejected the call, or a job has no
    score; 2 they cannot be compared, or wrong usage.
    """
    with server.connect() as client:
        asked = given(
            confidence=confidence, resamples=resamples, seed=evidence_seed, population=population
        )
        held = [_read(name, client) for name in (first, second)]
        try:
            found = client.compare_scores(held[0], held[1], EvidenceOptions(**asked))
        except ArgumentError as error:  # names a file as it was given
            of = {"a": first, "b": second}.get(error.field, "")
            wrong = f"{of}: {error.description}" if ": found" in error.description else ""
            raise ArgumentError(error.field, wrong or error.description) from error
    form.answer(found, lambda: _show(found))


def _read(text: str, client: AcpcClient) -> Any:  # noqa: ANN401 - a result or an operation
    path = Path(text)
    if path.suffix in RESULT_FORMATS or path.is_file():
        return load_result(path)
    return client.operations.get(full_name(text))


def _show(found: ScoreComparison) -> None:
    """Print a row per number, what they mean, and what is sure."""
    render.line(f"A: {found.first}\nB: {found.second}")
    table = found.table()
    numbers = [[cell(x, ".3g") for x in table[of]] for of in ("first", "second", "change")]
    pairs = zip(table["lower"], table["upper"], strict=True)
    intervals = [" to ".join(ends(*pair, ".3g")) for pair in pairs]
    titles = ["", "A", "B", "B - A", f"{100 * found.confidence:g} % interval", "B is"]
    rows = zip(table["number"], *numbers, intervals, table["second is"], strict=True)
    render.table(titles, list(rows))
    render.line(_LOWER_IS_BETTER)
    render.line(_HIGHER_IS_BETTER)
    render.line(found.headline())
    render.notes(found.notes)
