"""``acpc verify``."""

import math
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from acpc.contract import ArgumentError, Record, ScoreRequest, StudyRequest, from_plain
from acpc_client import AcpcClient, Result, load_result

from acpc_lab.cli import render
from acpc_lab.cli.command import Exit
from acpc_lab.cli.follow import follow
from acpc_lab.cli.options import Followed, Server
from acpc_lab.tables import ABSENT, gap, in_short, leaves, named

_COMPUTERS = ("code_version", "torch_version", "device", "image_codec", "program")
"""What computed, which may be another where numbers are the same."""
_ROUNDED = {"summary", "notes", "method", "rounding_floor"}
"""What follows from the last digits: words, and how far rounding reaches on a device."""

_ROUNDING = 0.01
"""Relative difference that no other device explains."""


class Change(Record, repr=False):
    """What differs between a file and an answer: a value, or some of an array's.

    Attributes:
        what: Path in the document.
        held: In the file; of several values how many of how many differ.
        now: Of the answer; of several nothing.
        apart: Largest relative difference; None where it is not one of numbers.
    """

    what: str
    held: str
    now: str
    apart: float | None


class Repetition(Record, repr=False):
    """A result beside the one that the same request has now.

    Attributes:
        operation: The job that was asked for.
        compared: Numbers, words and digests of the file.
        changes: Those that differ by more than allowed.
        largest: Largest relative difference that counts as none.
        computed_by: What computed, where it is another: in the file, and now.
    """

    operation: str
    compared: int
    changes: tuple[Change, ...]
    largest: float
    computed_by: dict[str, tuple[str, str]]


class Verify(Followed, Server):
    """Does a stored result come out again?

    Of a job's result the server is asked the same once more, under the names of that time, and
    every number, verdict and digest of the file is compared with the new answer. Of a study's
    folder the SHA-256 of every file is compared with the manifest, and the summary is computed
    again from its rows; no server is asked. Exits with 1 where something differs.

    **Examples**

        acpc verify score.json
        acpc verify score.json --within 1e-4
        acpc verify drift/

    Attributes:
        source: A file of --out with a score or a study, or a study's folder.
        within: Relative difference of numbers that counts as none; another device rounds
            otherwise [0, to the bit; npz and JSON hold every bit].
    """

    source: Annotated[Path, typer.Argument(metavar="RESULT|FOLDER", exists=True)]
    within: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.0

    def __call__(self) -> None:
        if self.source.is_dir():
            self._study()
            return
        held = load_result(self.source)
        with self.connect() as client:
            job = _submitted(client, held, str(self.source))
            ended = follow(client, job.name, timeout=self.timeout)
        if ended.error is not None:
            render.error(ended.error)
            raise typer.Exit(Exit.JOB_ENDED_BADLY)
        found = compared(held, Result.of(ended), self.within)
        self.answer(found, lambda: self._show(found))
        if found.changes:
            raise typer.Exit(Exit.ERROR)

    def _show(self, found: Repetition) -> None:
        many = f"{len(found.changes)} of {found.compared} values and arrays"
        line = f"{many} differ" if found.changes else f"OK: {found.compared} values and arrays"
        if found.largest:
            line += f"; others by {found.largest:.1g} at most"
        render.prose(f"{line} ({found.operation})")
        if found.changes:
            rows = [(one.what, one.held, one.now, "" if one.apart is None else f"{one.apart:.1g}")
                    for one in found.changes]  # fmt: skip
            render.table(("what", "in the file", "now", "relative difference"), rows)
        for name, (before, now) in found.computed_by.items():
            render.note(f"{name}: {before} in the file, {now} now")
        numbers = [one.apart for one in found.changes if one.apart is not None]
        if numbers and len(numbers) == len(found.changes) and max(numbers) <= _ROUNDING:
            render.note(f"numbers alone differ: --within {2 * max(numbers):.0e} allows for it")

    def _study(self) -> None:
        from acpc_lab import studies  # noqa: PLC0415  slow to import
        from acpc_lab.studies import bundle  # noqa: PLC0415

        if not (self.source / bundle.MANIFEST).is_file():
            held = "a sweep" if (self.source / "plan.json").is_file() else "no study"
            wanted = f"a study's folder, with its {bundle.MANIFEST}, or a file of --out"
            raise ArgumentError("RESULT", f"{self.source} holds {held}; verify takes {wanted}")
        found = studies.verify(self.source)
        if self.json or found.difference is None:
            what = f"{found.study} study {found.digest}"
            held = f"{found.files} files and {found.values} values"
            self.answer(found, lambda: render.line(f"OK: {what}: {held}"))
        if found.difference is not None:
            render.problem(f"first difference: {found.difference}")
            raise typer.Exit(Exit.ERROR)


def _submitted(client: AcpcClient, held: Result, source: str) -> Any:  # noqa: ANN401 - a job
    """Asks for the same again, of whatever the checkpoints' names stand for now.

    Raises ArgumentError: The file does not hold the request.
    """
    kinds: dict[str, Any] = {"score": ScoreRequest, "study": StudyRequest}
    if held.kind not in kinds:
        wanted = "wanted a score or a study: no other file holds a request that can be sent again"
        raise ArgumentError("RESULT", f"{source} holds a result of kind {held.kind}, {wanted}")
    if not held.request:
        wanted = "save it with --out of acpc score or acpc show job"
        raise ArgumentError("RESULT", f"{source} does not hold what was asked; {wanted}")
    asked = {**vars(from_plain(kinds[held.kind], held.request)), "request_id": str(uuid.uuid4())}
    for side in ("checkpoint", "reference"):
        if asked.get(side):
            asked[side] = replace(asked[side], digest="", model_digest="")
    call: Any = client.score_checkpoint if held.kind == "score" else client.run_study
    first = [asked.pop(of) for of in ("checkpoint", "anchors")]
    return call(*first, asked.pop("shift" if held.kind == "score" else "study"), **asked)


def compared(held: Result, now: Result, within: float = 0.0) -> Repetition:
    """Compares all that a file says with what the same request has now.

    Values of arrays are counted by the array. What the file lacks is not compared, as of an older
    release, or where values per anchor were left out; what follows from last digits only where
    every bit counts.
    """
    documents = [one.to_dict() for one in (held, now)]
    receipts = [document["receipt"] or {} for document in documents]
    found, wanted = (
        dict(
            leaves(
                {
                    "answer": document["answer"],
                    "receipt": {k: v for k, v in receipt.items() if k not in _COMPUTERS},
                }
            )
        )
        for document, receipt in zip(documents, receipts, strict=True)
    )
    arrays: dict[str, list[Any]] = {}
    for path, value in found.items():
        grown = value is None and path not in wanted  # into what the file's release lacked
        if not grown and not (within and _ROUNDED & {*path}):
            name = named(tuple(step for step in path if isinstance(step, str)))
            arrays.setdefault(name, []).append((value, wanted.get(path, ABSENT)))
    changes, largest = [], 0.0
    for name, pairs in arrays.items():
        apart = [gap(*pair) for pair in pairs]
        far = [one for one in apart if one > within]
        largest = max([largest, *(one for one in apart if one <= within)])
        if far:
            before, after = (in_short(one) for one in pairs[0])
            if len(pairs) > 1:
                before, after = f"{len(far)} of {len(pairs)} differ", ""
            apart_by = None if math.isinf(max(far)) else max(far)
            changes.append(Change(name, before, after, apart_by))
    by = {name: [str(one.get(name, "")) for one in receipts] for name in _COMPUTERS}
    other = {name: (pair[0], pair[1]) for name, pair in by.items() if pair[0] != pair[1]}
    return Repetition(now.operation, len(arrays), tuple(changes), largest, other)
