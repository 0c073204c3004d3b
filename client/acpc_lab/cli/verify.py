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
from acpc_lab.tables import compared, leaves

_COMPUTERS = ("code_version", "torch_version", "device", "image_codec", "program")
"""What computed, which may be another where numbers are the same."""
_ROUNDED = {"summary", "notes", "method", "rounding_floor"}
"""What follows from the last digits: words, and how far rounding reaches on a device."""


class Repetition(Record, repr=False):
    """A result beside the one that the same request has now.

    Attributes:
        operation: The job that was asked for.
        values: Numbers, words and digests of the file.
        differ: How many of them differ by more than allowed.
        largest_difference: Largest relative difference of two numbers; None: not of numbers alone.
        difference: The first that differs; None when none does.
        computed_by: What computed, where it is another: in the file, and now.
    """

    operation: str
    values: int
    differ: int
    largest_difference: float | None
    difference: str | None
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
        found = _repeated(held, Result.of(ended), self.within)
        self._conclude(found, f"{found.values} values ({found.operation})")
        for name, (before, now) in found.computed_by.items():
            render.note(f"{name}: {before} in the file, {now} now")
        if found.differ:
            apart = found.largest_difference
            most = f", by {apart:.1g} at most: see --within" if apart else ""
            render.note(f"{found.differ} of {found.values} values differ{most}")
            raise typer.Exit(Exit.ERROR)

    def _conclude(self, found: Any, held: str) -> None:  # noqa: ANN401 - one of two records
        """Prints what is equal, or the first difference."""
        if self.json or found.difference is None:
            self.answer(found, lambda: render.line(f"OK: {held}"))
        if found.difference is not None:
            render.problem(f"first difference: {found.difference}")

    def _study(self) -> None:
        from acpc_lab import studies  # noqa: PLC0415  slow to import
        from acpc_lab.studies import bundle  # noqa: PLC0415

        if not (self.source / bundle.MANIFEST).is_file():
            held = "a sweep" if (self.source / "plan.json").is_file() else "no study"
            wanted = f"a study's folder, with its {bundle.MANIFEST}, or a file of --out"
            raise ArgumentError("RESULT", f"{self.source} holds {held}; verify takes {wanted}")
        found = studies.verify(self.source)
        what = f"{found.study} study {found.digest}"
        self._conclude(found, f"{what}: {found.files} files and {found.values} values")
        if found.difference is not None:
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


def _repeated(held: Result, now: Result, within: float) -> Repetition:
    """Compares all that a file says with what the same request has now.

    What the file lacks is not compared, as of an older release, or where values per anchor were
    left out; what follows from last digits only where every bit counts.
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
    left = [
        path
        for path, value in found.items()
        if not (value is None and path not in wanted)  # grew into what was not there
        and not (within and _ROUNDED & {*path})
    ]
    both = [{path: of[path] for path in left if path in of} for of in (found, wanted)]
    apart = compared(*both, within)
    by = {name: [str(one.get(name, "")) for one in receipts] for name in _COMPUTERS}
    other = {name: (pair[0], pair[1]) for name, pair in by.items() if pair[0] != pair[1]}
    largest = apart.largest if math.isfinite(apart.largest) else None
    return Repetition(now.operation, apart.values, apart.differ, largest, apart.first, other)
