"""Options that commands share, and what a command does at Ctrl-C."""

import _thread
import re
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import typer
from acpc.contract import WEIGHTS_SUFFIXES, parse_grid
from acpc_client import AcpcClient, CheckpointRef, DatasetAnchors, EvidenceOptions, Perturbation
from acpc_client.errors import ArgumentError

from acpc_lab.cli import render
from acpc_lab.cli.command import Exit, Options, given, sets
from acpc_lab.cli.render import Format
from acpc_lab.evidence import Correction, Gate
from acpc_lab.tables import FORMATS

_AGAIN_S = 1.0


CorrectionOption = Annotated[
    Correction,
    typer.Option(
        help="holm: the chance that any verdict called sure is wrong is at most 1 - confidence; "
        "bh, by: so large a share of them is expected to be wrong, if they depend positively, or "
        "however they do; none: judge each cell by itself."
    ),
]
Concurrency = Annotated[
    int | None, typer.Option(min=1, max=1000, help="Jobs at the server at a time [the file's].")
]


class Printed(Options):
    """How an answer is printed.

    Attributes:
        form: table; wide: with every column and row; json; csv.
    """

    form: Annotated[Format, typer.Option("--output", "-o")] = Format.TABLE

    @property
    def json(self) -> bool:
        return self.form is Format.JSON


class Followed(Printed):
    """How an answer that takes a while is printed.

    Attributes:
        quiet: Only the result and errors.
    """

    quiet: Annotated[bool, typer.Option("--quiet", "-q")] = False


@contextmanager
def left_soon(client: AcpcClient) -> Iterator[AcpcClient]:
    """Closes a client in the end, and waits for that a second at most.

    A Ctrl-C while gRPC begins a stream leaves a call that nothing ends, for which it waits forever.
    """
    try:
        yield client
    finally:
        closing = threading.Thread(target=client.close, daemon=True)
        closing.start()
        closing.join(_AGAIN_S)


@contextmanager
def interruptible(words: Iterable[str]) -> Iterator[None]:
    """At Ctrl-C prints how to go on, a line each, and ends the command with its exit code.

    An interrupt that a library swallows, as in a finaliser or an import, or that meets a wait for
    what will not come, comes again after a second, until it ends the block.
    """
    inside, main = [True], threading.main_thread().ident or 0

    def insist() -> None:
        time.sleep(_AGAIN_S)
        if inside and hasattr(signal, "pthread_kill"):  # which also wakes it from a wait
            signal.pthread_kill(main, signal.SIGINT)

    def interrupt(*_: object) -> None:
        _thread.start_new_thread(insist, ())  # threading's own lock may be held right now
        raise KeyboardInterrupt

    heeded = threading.current_thread() is threading.main_thread()
    heeded = heeded and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except KeyboardInterrupt as error:
        inside.clear()
        for line in words:
            render.note(line)
        raise typer.Exit(Exit.INTERRUPTED) from error
    finally:
        inside.clear()
        if heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def require_folder(path: Path | None) -> Path | None:
    """The path, once the folder it lies in is known to take files."""
    if path is not None:
        if not path.parent.is_dir():
            raise typer.BadParameter(f"the folder {path.parent} does not exist")
        try:
            TemporaryFile(dir=path.parent).close()
        except OSError as error:
            raise typer.BadParameter(f"cannot write {path}: {error.strerror}") from error
    return path


def out_option(help: str, formats: Sequence[str] = FORMATS, *flags: str) -> Any:  # noqa: ANN401
    """An option with the file to write, which ends in one of some suffixes."""

    def check(path: Path | None) -> Path | None:
        if path is not None and path.suffix not in formats:
            wanted = ", ".join(formats)
            raise typer.BadParameter(
                f"found {path.name!r}, wanted a name ending in one of {wanted}"
            )
        return require_folder(path)

    more: dict[str, Any] = {"metavar": "FILE", "dir_okay": False, "writable": True}
    return typer.Option(*flags or ("--out",), callback=check, help=help, **more)


GateOption = Annotated[
    Gate,
    typer.Option(
        help="What decides the exit code. point: the numbers; confident: their intervals, which "
        "may leave it undecided (exit 5)."
    ),
]
Junit = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        dir_okay=False,
        callback=require_folder,
        help="Also write the verdicts as a JUnit file for the CI system, a test case each; "
        "undecided ones are skipped.",
    ),
]
ScoreOut = Annotated[
    Path | None,
    out_option("Also write the answer here: .json to read; .npz to load again exactly."),
]
_SHIFT = "The visual change, as gaussian_noise:0.08 or blur:15; `acpc list shifts` has all."
Shift = Annotated[str, typer.Option(metavar="KIND:SEVERITY", help=_SHIFT)]
Shifts = Annotated[
    list[str] | None,
    typer.Option(
        "--shift",
        metavar="KIND:SEVERITY",
        help=f"{_SHIFT} A grid: KIND:A,B,C or KIND:FIRST..LAST/COUNT. May be repeated.",
    ),
]


def read_grid(texts: Sequence[str]) -> list[Perturbation]:
    """The perturbations of every ``--shift``, of which ``kind:a,b,c`` names several."""
    try:
        return [shift for text in texts for shift in parse_grid(text)]
    except ArgumentError as error:
        raise error.moved("perturbation", "--shift") from error


_WEIGHTS = "|".join(map(re.escape, WEIGHTS_SUFFIXES))
_REF = re.compile(rf"(.+?)(?::([^:/]+(?:{_WEIGHTS})))?(?:@([0-9a-f]{{12,64}}))?")
CheckpointName = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="Its folder at the server; NAME:FILE names one of several weights files, "
        "NAME@DIGEST (12 digits or more) refuses other content.",
    ),
]


def checkpoint_of(text: str) -> CheckpointRef:
    """A checkpoint, named as ``NAME[:WEIGHTS][@DIGEST]``."""
    found = _REF.fullmatch(text)
    return CheckpointRef(*(part or "" for part in found.groups())) if found else CheckpointRef(text)


def job_name(name: str) -> str:
    """The name of a job, of which the id may be given alone."""
    return name if name.startswith("operations/") else f"operations/{name}"


Population = Annotated[
    Any,
    sets(
        EvidenceOptions,
        "population",
        help="What a verdict is sure of: all windows of the dataset, or new trajectories like its "
        "own, which takes more [dataset; trajectories where anchors were uploaded].",
    ),
]
DRAW = ("seed", "frameskip", "one_per_episode", "window_future_frames", "sample")
"""How anchors are drawn from a dataset, in a protocol file."""


class AnchorCount(Options):
    """How many anchors are drawn from a dataset.

    Attributes:
        anchors: How many [a score: until decided, 400 at most; else 100].
        episodes: Draw from these alone: 0-99, 3,7, COLUMN=VALUE, or a file that lists them [all].
    """

    anchors: Annotated[int | None, sets(DatasetAnchors, "count", "--anchors")] = None
    episodes: Annotated[str | None, typer.Option(metavar="WORDS|@FILE")] = None

    def drawn(self) -> dict[str, Any]:
        """What was given, by the names of ``DatasetAnchors``; a file's episodes are read."""
        episodes = self.episodes
        if episodes is not None and episodes.startswith("@"):
            file = episodes[1:]
            try:
                episodes = ",".join(Path(file).read_text("utf-8").replace(",", " ").split())
            except (OSError, UnicodeDecodeError) as error:
                raise ArgumentError("--episodes", f"cannot read {file}: {error}") from error
        return given(count=self.anchors, episodes=episodes)
