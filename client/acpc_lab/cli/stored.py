"""``acpc judge``, ``acpc diff`` and ``acpc verify``: what stored results say."""

import math
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import acpc_client
import typer
from acpc import contract
from acpc.contract import Record, ScoreRequest, StudyRequest
from acpc_client import AcpcClient, EvidenceOptions, Outcome, Result, Score, Thresholds
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab import studies
from acpc_lab.cli import command, render
from acpc_lab.cli.cells import cells_of, results_table
from acpc_lab.cli.command import Exit, Keys, ProtocolOption, given, keys_of, read_protocol, sets
from acpc_lab.cli.connection import Server
from acpc_lab.cli.follow import Case, conclude, follow, settle
from acpc_lab.cli.options import Followed, Gate, GateOption, Junit, Population, Printed, job_name
from acpc_lab.evidence import Correction, ScoreComparison, compare_scores
from acpc_lab.studies import bundle
from acpc_lab.tables import compared, leaves

_COMPUTERS = ("code_version", "torch_version", "device", "image_codec", "program")
"""What computed, which may be another where numbers are the same."""
_ROUNDED = {"summary", "notes", "method", "rounding_floor"}
"""What follows from the last digits: words, and how far rounding reaches on a device."""


class Judge(Printed):
    """What do stored scores say under other thresholds?

    Compares the numbers and intervals of stored scores (`--out`, `-o json`, a sweep's results) with
    thresholds, as the server does. No server is asked, and no values per anchor are needed. The
    intervals keep their confidence: for another one, or for how many anchors would decide it, score
    again. Among several, a checkpoint that is its own reference does not count.

    **Examples**

        acpc judge score.json --t-ir 0.2
        acpc judge noise.sweep/results/*.npz --thresholds thresholds.json

    Attributes:
        sources: Scores, as .json or .npz.
        t_ir: Relative IR at most [the file's].
        t_sr: SR at least [the file's].
        thresholds: Those that `acpc study run thresholds --thresholds` wrote.
    """

    sources: Annotated[list[str], typer.Argument(metavar="RESULT...")]
    t_ir: Annotated[float | None, sets(Thresholds, "ir", "--t-ir")] = None
    t_sr: Annotated[float | None, sets(Thresholds, "sr", "--t-sr")] = None
    thresholds: Annotated[
        Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False)
    ] = None
    gate: GateOption = Gate.POINT
    junit: Junit = None

    def __call__(self) -> None:
        read = {} if self.thresholds is None else vars(command.calibrated(self.thresholds))
        limits = read | given(ir=self.t_ir, sr=self.t_sr)
        found = []
        for source in self.sources:
            try:
                found.append(one := _judged(source, limits))
                one.answer.gated(self.gate)
            except FailedPrecondition as error:  # of the file, as no server is asked
                raise ArgumentError("RESULT", f"{source}: {error.message}") from error
        cells = cells_of(found, [one.score_request for one in found], Correction.NONE)
        named = [(x, replace(cell, name=x)) for x, cell in zip(self.sources, cells, strict=True)]
        if self.json:
            render.result(*found)
        elif len(found) == 1:
            render.score(found[0].answer)
        else:
            shown = [cell for _, cell in named]
            results_table(shown, first="file", correction=Correction.NONE)
        conclude("acpc judge", named, self.gate, self.junit)


def _judged(source: str, limits: dict[str, Any]) -> Result:
    """A stored score by thresholds, of which those that are not given are its own."""
    held = acpc_client.load_result(source)
    score = held.answer
    if not isinstance(score, Score):
        wanted = "wanted a score, as acpc score and acpc show job write it with --out"
        raise _wrong_kind(source, held, wanted)
    with contract.below(source):
        contract.check_score(score)
    thresholds = replace(score.verdict.thresholds, **limits)
    request = {**held.request, "thresholds": contract.to_plain(thresholds)}
    return replace(held, answer=acpc_client.judge_again(score, thresholds), request=request)


def _wrong_kind(source: str, held: Result, wanted: str) -> ArgumentError:
    return ArgumentError("RESULT", f"{source} holds a result of kind {held.kind}, {wanted}")


class Diff(Followed, Server):
    """Compares two checkpoints that were scored on the same anchors.

    Prints IR and SR of both, B minus A, and where that difference lies at the confidence asked
    for. Anchors are paired, so that what makes some of them hard for both cancels: a difference
    can be sure although the intervals of the two scores overlap. Scores of other anchors, another
    shift, protocol or reference are refused, with every reason. No server is asked for files.

    **Examples**

        acpc diff before.json after.json
        acpc diff 5f0c9a 77aa02 --protocol '{confidence: 0.99}'

    A release can stop where the new checkpoint may be worse than the deployed one:

        acpc diff deployed.json candidate.json --gate no-worse || exit 1

    Attributes:
        first: A score: a file of `--out`, or a job, by operations/ID or its ID.
        second: The score that is compared with A, named likewise.
        gate: no-worse: exit with 3 where B is surely worse than A, 5 where intervals allow either.
    """

    keys: ClassVar[Keys] = keys_of(EvidenceOptions, ("confidence", "resamples", "seed"))

    first: Annotated[str, typer.Argument(metavar="A")]
    second: Annotated[str, typer.Argument(metavar="B")]
    gate: Literal["no-worse"] | None = None
    junit: Junit = None
    population: Population = None
    protocol: ProtocolOption = None

    def __call__(self) -> None:
        asked = read_protocol(self.protocol, self.keys) | given(population=self.population)
        with self.connect() as client:
            first, second = (_score(name, client) for name in (self.first, self.second))
            try:
                found = compare_scores(first, second, EvidenceOptions(**asked))
            except ArgumentError as error:  # names a file as it was given
                of = {"a": self.first, "b": self.second}.get(error.field, "")
                wrong = f"{of}: {error.description}" if ": found" in error.description else ""
                raise ArgumentError(error.field, wrong or error.description) from error
        render.answer(found)
        if self.gate is None:
            return
        outcome = _no_worse(found)
        code = settle("acpc diff", [Case(found.second, outcome, found.headline())], self.junit)
        if outcome is Outcome.FAILED:
            render.note(f"{found.second} is surely worse than {found.first}")
        if outcome is Outcome.UNDECIDED:
            render.note(f"undecided: {found.second} may be worse than {found.first}, or may not")
        raise typer.Exit(code)


def _no_worse(found: ScoreComparison) -> Outcome:
    """Whether the second score is no worse than the first: surely so, surely not, or undecided."""
    error, rate = found.ir_relative or found.ir_raw, found.sr
    if error.direction == "higher" or (rate is not None and rate.direction == "lower"):
        return Outcome.FAILED
    kept = rate is not None and rate.interval.lower >= rate.even
    return Outcome.PASSED if kept and error.interval.upper <= error.even else Outcome.UNDECIDED


def _score(text: str, client: AcpcClient) -> Score:
    path = Path(text)
    if not (path.suffix in acpc_client.RESULT_FORMATS or path.is_file()):
        return client.operations.get(job_name(text)).result()
    held = acpc_client.load_result(path)
    if not isinstance(held.answer, Score):
        raise ArgumentError(text, f"found a {held.kind}, wanted a score")
    return held.answer


class _Repetition(Record, repr=False):
    """A result beside the one that the same request has now.

    Attributes:
        differ: How many values differ by more than allowed.
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
        found, what = self._study() if self.source.is_dir() else self._job()
        if self.json:
            render.line(found.to_json(indent=2))
        elif found.difference is None:
            render.line(f"OK: {what}")
        if found.difference is not None:
            render.problem(f"first difference: {found.difference}")
        if isinstance(found, _Repetition):
            for name, (before, now) in found.computed_by.items():
                render.note(f"{name}: {before} in the file, {now} now")
            if found.differ:
                apart = found.largest_difference
                most = f", by {apart:.1g} at most: see --within" if apart else ""
                render.note(f"{found.differ} of {found.values} values differ{most}")
        raise typer.Exit(Exit.OK if found.difference is None else Exit.ERROR)

    def _job(self) -> tuple[Any, str]:
        held = acpc_client.load_result(self.source)
        with self.connect() as client:
            job = _submitted(client, held, str(self.source))
            ended = follow(client, job.name, self.timeout)
        if ended.error is not None:
            render.error(ended.error)
            raise typer.Exit(Exit.JOB_ENDED_BADLY)
        found = _repeated(held, Result.of(ended), self.within)
        return found, f"{found.values} values ({found.operation})"

    def _study(self) -> tuple[Any, str]:
        if not (self.source / bundle.MANIFEST).is_file():
            held = "a sweep" if (self.source / "plan.json").is_file() else "no study"
            wanted = f"a study's folder, with its {bundle.MANIFEST}, or a file of --out"
            raise ArgumentError("RESULT", f"{self.source} holds {held}; verify takes {wanted}")
        found = studies.verify(self.source)
        files = f"{found.files} files and {found.values} values"
        return found, f"{found.study} study {found.digest}: {files}"


def _submitted(client: AcpcClient, held: Result, source: str) -> Any:  # noqa: ANN401 - a job
    """Asks for the same again, of whatever the checkpoints' names stand for now."""
    kinds: dict[str, Any] = {
        "score": (ScoreRequest, client.score_checkpoint, "shift"),
        "study": (StudyRequest, client.run_study, "study"),
    }
    if held.kind not in kinds:
        wanted = "wanted a score or a study: no other file holds a request that can be sent again"
        raise _wrong_kind(source, held, wanted)
    if not held.request:
        wanted = "save it with --out of acpc score or acpc show job"
        raise ArgumentError("RESULT", f"{source} does not hold what was asked; {wanted}")
    kind, submit, what = kinds[held.kind]
    asked = {**vars(contract.from_plain(kind, held.request)), "request_id": str(uuid.uuid4())}
    for side in ("checkpoint", "reference"):
        if asked.get(side):
            asked[side] = replace(asked[side], digest="", model_digest="")
    first = [asked.pop(name) for name in ("checkpoint", "anchors", what)]
    return submit(*first, **asked)


def _repeated(held: Result, now: Result, within: float) -> _Repetition:
    """Compares all that a file says with what the same request has now.

    What the file lacks is not compared, as of an older release, or where values per anchor were
    left out; what follows from last digits only where every bit counts.
    """
    documents = [one.to_dict() for one in (held, now)]
    receipts = [document["receipt"] or {} for document in documents]
    by = {name: [str(one.pop(name, "")) for one in receipts] for name in _COMPUTERS}
    found, wanted = (
        dict(leaves({"answer": document["answer"], "receipt": receipt}))
        for document, receipt in zip(documents, receipts, strict=True)
    )
    left = {
        path: value
        for path, value in found.items()
        if not (value is None and path not in wanted)  # grew into what was not there
        and not (within and _ROUNDED & {*path})
    }
    apart = compared(left, {path: wanted[path] for path in left if path in wanted}, within)
    other = {name: (pair[0], pair[1]) for name, pair in by.items() if pair[0] != pair[1]}
    largest = apart.largest if math.isfinite(apart.largest) else None
    return _Repetition(now.operation, apart.values, apart.differ, largest, apart.first, other)
