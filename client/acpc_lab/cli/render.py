"""Prints answers and errors. Answers go to stdout, all else to stderr."""

from __future__ import annotations

import enum
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from itertools import compress
from typing import Any

from acpc.console import escaped
from acpc.contract import NUMBERS, Record, Tabular, cell, text_table
from acpc_client import DatasetAnchors, Operation, Perturbation, Receipt, Result, Score, StudyResult
from acpc_client.errors import AcpcError

from acpc_lab.tables import Quantity, csv_of

DIGITS = 12
"""Digits of a digest that name it as well as all of them."""


class Format(enum.StrEnum):
    """How a list is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    CSV = "csv"


FORM = ContextVar("form", default=Format.TABLE)
"""How this command prints tables; beside CSV, sentences go to stderr."""
QUIET = ContextVar("quiet", default=False)
"""Whether this command prints its result and errors alone."""


def line(text: str) -> None:
    """Writes one plain line on stdout."""
    sys.stdout.write(f"{escaped(text)}\n")


def prose(text: str) -> None:
    """Prints a sentence on stdout, on a terminal folded at words; beside CSV on stderr."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if FORM.get() is Format.CSV:
        note(text)
    else:
        line(textwrap.fill(text, width) if width else text)


def note(text: str) -> None:
    """Writes one plain line on stderr, unless it shall be quiet."""
    if not QUIET.get():
        sys.stderr.write(f"{escaped(text)}\n")


def problem(text: str) -> None:
    """Writes on stderr what went wrong."""
    sys.stderr.write(f"error: {escaped(text)}\n")


def notes(sentences: Iterable[str], kind: str = "warning") -> None:
    """Writes each sentence to stderr, a line each, after its kind (``note``, ``warning``)."""
    for sentence in sentences:
        note(f"{kind}: {sentence}")


def presence(away: AcpcError | None) -> None:
    """Writes why the server is away, or that it is back."""
    note(away.message if away else "the server is back")


def error(failure: AcpcError) -> None:
    """Prints code, message, each field violation on a line, and the request id."""
    lines = [f"{failure.code}: {failure.message}"]
    for violation in failure.violations:
        words = f"{violation.field}: {violation.description}"
        if words != failure.message:
            lines.append(f"  {words}")
    if failure.reason == "WEIGHTS_AMBIGUOUS":
        lines.append("  name one after the checkpoint: NAME:FILE")
    if failure.retry_after is not None:
        lines.append(f"  try again in {failure.retry_after:.1f} s")
    if failure.request_id:
        lines.append(f"  request id: {failure.request_id}")
    problem("\n".join(lines))


def result(*answers: object) -> None:
    """The document of a result, of an operation with an answer, or of an answer; a list of several.

    A score comes without the values of every anchor, which are thousands of lines: files have them.
    """
    documents = [_brief(Result.of(answer).to_dict()) for answer in answers]
    line(json.dumps(documents if answers[1:] else documents[0], indent=2, allow_nan=False))


def _brief(value: Any) -> Any:  # noqa: ANN401 - a plain value
    if not isinstance(value, dict):
        return value
    return {name: _brief(held) for name, held in value.items() if name != "anchor_values"}


def table(columns: Mapping[str, Iterable[object]]) -> None:
    """A table on stdout, of columns by their headings."""
    cells = {name: [escaped(cell(value)) for value in held] for name, held in columns.items()}
    if FORM.get() is Format.CSV:
        sys.stdout.write(csv_of(cells))
    else:
        shown = {name: [text.replace("\n", " ") for text in held] for name, held in cells.items()}
        most = max(map(len, shown.values()), default=0)
        sys.stdout.write(f"{text_table(shown, most)}\n")


def show(columns: Iterable[Quantity], items: Iterable[object]) -> None:
    """Records as a table on stdout; ``-o wide`` and CSV have every column, whole."""
    brief, held = FORM.get() is Format.TABLE, list(items)
    kept = [column for column in columns if not (brief and column.wide)]

    def text_of(column: Quantity, item: object) -> str:
        text, most = escaped(column.cell(item)), column.most if brief else None
        if most and " " in text:
            return textwrap.shorten(text, most, placeholder=" ...")
        return text[:most]

    table({column.heading: [text_of(column, item) for item in held] for column in kept})


def listing(
    items: Sequence[Any],
    columns: Sequence[Quantity],
    plain: Callable[[Any], object] = Record.to_dict,
) -> None:
    """Items as a table, or as a JSON list of ``plain``."""
    if FORM.get() is Format.JSON:
        line(json.dumps([plain(item) for item in items], indent=2))
    elif not items and FORM.get() is not Format.CSV:
        note("there are none")
    else:
        show(columns, items)


def fields(
    item: Any,  # noqa: ANN401 - a record
    columns: Sequence[Quantity],
    plain: Callable[[Any], object] = Record.to_dict,
) -> None:
    """One item, a line for each thing to know of it; or as a list of one has it."""
    if FORM.get() is Format.JSON:
        line(json.dumps(plain(item), indent=2))
    elif FORM.get() is Format.CSV:
        show(columns, [item])
    else:
        for column in columns:
            text = column.cell(item)
            if text not in ("", "-"):
                line(f"{column.heading:<20}{text}")


def answer(held: Any, shifts: Sequence[Perturbation] = ()) -> None:  # noqa: ANN401 - any Tabular
    """An answer, or a result with one: the headline, the table, what its names mean, warnings.

    Views are named by their shifts, where there are any. A table has a row per view where it is
    wide or CSV.
    """
    if FORM.get() is Format.JSON:
        line(held.to_json(indent=2))
        return
    found = held.answer if isinstance(held, Result) else held
    prose(found.headline())
    shown = found.shown() if FORM.get() is Format.TABLE else found.table()
    if "spec_index" in shown:
        at = shown["spec_index"]
        view = [str(shifts[index]) for index in at] if shifts else ["given"] * len(at)
        shown = {"view": view} | {k: held for k, held in shown.items() if k != "spec_index"}
    tabular(found, {name.replace("_", " "): held for name, held in shown.items()})
    if hasattr(found, "receipt"):
        receipt(found.receipt)
    notes(getattr(found, "notes", ()))


def receipt(proof: Receipt) -> None:
    """Prints the digests, code version and device that the numbers come from."""
    prose(
        f"checkpoint {proof.checkpoint_digest[:DIGITS]}  anchors {proof.anchors_digest[:DIGITS]}  "
        f"acpc {proof.code_version}  {proof.numeric_mode.name.lower()} on "
        f"{proof.device}{proof.program and f', {proof.program}'}"
    )
    if proof.weights_read:
        prose(f"weights: {proof.weights_read} (acpc-server import takes others: --weights-key)")
    if proof.reference_weights_read:
        prose(f"weights of the reference: {proof.reference_weights_read}")


def tabular(answer: Tabular, shown: Mapping[str, Iterable[object]]) -> None:
    """Prints a table of an answer, and what its names stand for."""
    table(shown)
    if words := answer.meaning():
        prose(words)


def asked(job: Operation, *, shifts: int = 1) -> str:
    """What a scoring job was asked, in a line; empty where the server does not say."""
    request = job.request
    if request is None:
        return ""
    against = f" against {request.reference.name}" if request.reference else ""
    shift = f"{shifts} shifts" if shifts > 1 else str(request.shift)
    caller = f", by {job.caller}" if job.caller else ""
    return f"asked: {request.checkpoint.name}{against} under {shift}, on {source_of(job)}{caller}"


def study_line(study: StudyResult) -> str:
    """A study in one line, with its columns."""
    return f"{study.headline()} of {', '.join(study.columns)}"


def source_of(job: Operation) -> str:
    """Where the anchors of a scoring job come from."""
    source = job.request and job.request.anchors
    if isinstance(source, DatasetAnchors):
        return f"{source.dataset}, task {source.task}"
    return f"anchor set {source[:DIGITS]}" if source else "-"


_RARE = [number.title for number in NUMBERS.values() if number.rare]
"""Rows of a score that are shown with ``-o wide`` and CSV alone."""


def score(answer: Score, asked: str = "") -> None:
    """The verdict in words, what was asked, then the checkpoint beside its reference."""
    wide = FORM.get() is not Format.TABLE
    certain = f"how sure: {answer.certainty}" if answer.certainty else ""
    for sentence in filter(None, (answer.sentence, certain, asked)):
        prose(sentence)
    held = answer.shown(wide=wide)
    kept = [wide or name not in _RARE for name in held[""]]
    tabular(answer, {title: compress(column, kept) for title, column in held.items()})
    receipt(answer.receipt)
    for sentence in (*answer.fit_notes, *answer.rounding_notes):
        prose(f"warning: {sentence}")
    notes(answer.evidence.notes if answer.evidence else ())
