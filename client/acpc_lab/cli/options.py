"""Options that commands share, the exit codes, and the connection."""

import _thread
import enum
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import typer
from acpc.contract import WEIGHTS_SUFFIXES, parse_grid
from acpc_client import (
    DEFAULT_TARGET,
    AcpcClient,
    CheckpointRef,
    DatasetAnchors,
    EvidenceOptions,
    Perturbation,
    make_access,
)
from acpc_client.errors import ArgumentError

from acpc_lab.cli import profiles, render
from acpc_lab.cli.command import SERVER, Exit, Options, given, sets
from acpc_lab.evidence import Correction
from acpc_lab.tables import FORMATS

_AGAIN_S = 1.0


class Gate(enum.StrEnum):
    """Which verdict decides an exit code: of the numbers as they are, or the confident one."""

    POINT = "point"
    CONFIDENT = "confident"


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

    form: Annotated[render.Format, typer.Option("--output", "-o", callback=render.print_as)] = (
        render.Format.TABLE
    )

    @property
    def json(self) -> bool:
        return self.form is render.Format.JSON

    @property
    def wide(self) -> bool:
        return self.form is not render.Format.TABLE

    def answer(self, found: Any, show: Callable[[], object]) -> None:  # noqa: ANN401 - any record
        """Prints a record or a result: its JSON, or what ``show`` prints of it."""
        if self.json:
            render.line(found.to_json(indent=2))
        else:
            show()


class Followed(Printed):
    """How an answer that takes a while is printed.

    Attributes:
        quiet: Only the result and errors.
    """

    quiet: Annotated[bool, typer.Option("--quiet", "-q", callback=render.be_quiet)] = False


class Server(Options):
    """The server to ask. How to get in is said by a profile, or by variables (`acpc config`).

    Attributes:
        profile: A connection of `acpc config` [the one in use].
    """

    target: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"The server; several: A:PORT,B:PORT [ACPC_TARGET, profile, {DEFAULT_TARGET}].",
            callback=lambda ctx, value: value or ctx.find_root().params.get("target"),
            rich_help_panel=SERVER,
        ),
    ] = None
    profile: Annotated[
        str | None, typer.Option(envvar="ACPC_PROFILE", metavar="NAME", rich_help_panel=SERVER)
    ] = None

    def connection(self) -> dict[str, Any]:
        """What the option, the variables and the profile say.

        Raises AcpcError: The profile cannot be read.
        """
        asked: dict[str, Any] = {"target": self.target} if self.target else {}
        asked = profiles.variables() | asked
        return profiles.chosen(self.profile, named_elsewhere="target" in asked) | asked

    @cached_property
    def timeout(self) -> float | None:
        """Seconds of a call, or of a wait for jobs."""
        return self.connection().get("timeout")

    def client(self, **options: Any) -> AcpcClient:  # noqa: ANN401
        known = self.connection()
        waits = {name: known.pop(name, None) for name in ("timeout", "patience")}
        where = known.pop("target", None) or DEFAULT_TARGET
        insecure = {"insecure": True} if known.pop("insecure", False) else {}
        entry: Any = make_access(**known, api_key=os.environ.get("ACPC_API_KEY"))
        return AcpcClient(where, **{**entry, **insecure, **waits, **options})

    def connect(self) -> AbstractContextManager[AcpcClient]:
        """A client that says when its server is away, and is left without a long wait."""
        return left_soon(self.client(on_away=render.presence))


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
    """The perturbations of every ``--shift``: ``kind:a,b,c`` or ``kind:a..b/count`` names several.

    Raises ArgumentError: One names none; the message lists the choices.
    """
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


def _listed(episodes: str | None) -> str | None:
    """Episodes as they are given, or those that a file here lists, a few on each line.

    Raises ArgumentError: The file cannot be read.
    """
    if episodes is None or not episodes.startswith("@"):
        return episodes
    try:
        return ",".join(Path(episodes[1:]).read_text("utf-8").replace(",", " ").split())
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError("--episodes", f"cannot read {episodes[1:]}: {error}") from error


class AnchorCount(Options):
    """How many anchors are drawn from a dataset."""

    anchors: Annotated[
        int | None,
        sets(
            DatasetAnchors,
            "count",
            "--anchors",
            help="How many [a score: until decided, 400 at most; else 100].",
        ),
    ] = None
    episodes: Annotated[
        str | None,
        sets(
            DatasetAnchors,
            "episodes",
            metavar="WORDS|@FILE",
            help="Draw from these alone: 0-99, 3,7, COLUMN=VALUE, or a file that lists them [all].",
        ),
    ] = None

    def drawn(self) -> dict[str, Any]:
        return given(count=self.anchors, episodes=_listed(self.episodes))
