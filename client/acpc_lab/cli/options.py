"""Options that commands share, the exit codes, and the connection."""

import enum
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, Literal

import typer
from acpc.contract import ScoreRequest, parse_grid
from acpc_client import (
    DEFAULT_TARGET,
    Access,
    AcpcClient,
    CheckpointRef,
    DatasetAnchors,
    Perturbation,
    make_access,
)
from acpc_client.errors import AcpcError, ArgumentError, FailedPrecondition

from acpc_lab.cli import progress, render
from acpc_lab.cli.command import CHECKPOINT, SERVER, Options, given, sets
from acpc_lab.cli.table import Format
from acpc_lab.evidence import FamilyWise
from acpc_lab.tables import FORMATS


class Exit(enum.IntEnum):
    """Exit codes of ``acpc``."""

    OK = 0
    ERROR = 1
    USAGE = 2
    SCREEN_FAILED = 3
    NOT_CERTIFIED = 3
    JOB_ENDED_BADLY = 4
    UNDECIDED = 5
    INTERRUPTED = 130


class Gate(enum.StrEnum):
    """Which verdict decides an exit code: of the numbers as they are, or the confident one."""

    POINT = "point"
    CONFIDENT = "confident"


def _credential(variable: str, help: str, **more: Any) -> Any:  # noqa: ANN401 - as typer.Option
    return typer.Option(envvar=variable, help=help, rich_help_panel=SERVER, **more)


def _file(variable: str, help: str) -> Any:  # noqa: ANN401 - as typer.Option
    return _credential(variable, help, exists=True, dir_okay=False)


Patience = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="How long the server may be away at a stretch while jobs are submitted and followed; "
        "0: fail at once [600, and 10 for a server that never answered].",
        rich_help_panel=SERVER,
    ),
]
FamilyWiseOption = Annotated[
    FamilyWise,
    typer.Option(
        help="holm: the chance that any cell reported as passing is wrong is at most 1 - "
        "confidence; none: judge each cell by itself."
    ),
]
Concurrency = Annotated[
    int | None, typer.Option(min=1, max=1000, help="Jobs at the server at a time [the file's].")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        metavar="SECONDS",
        help="Deadline of each call; where the command waits for jobs, of the wait for all.",
        rich_help_panel=SERVER,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress on stderr.", callback=progress.be_quiet)
]


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Options):
    """Output options of a record or a list of them."""

    printed: Annotated[
        Format,
        typer.Option(
            "--print", "-o", help="As a table; with every column (wide); JSON; names, one a line."
        ),
    ] = Format.TABLE
    as_json: Annotated[bool, typer.Option("--json", help="Short for -o json.")] = False

    @property
    def form(self) -> Format:
        """The format, by either option."""
        return Format.JSON if self.as_json else Format(self.printed)

    @property
    def json(self) -> bool:
        """Whether JSON is wanted."""
        return self.form is Format.JSON

    def answer(self, found: Any, show: Callable[[], object]) -> None:  # noqa: ANN401 - any record
        """Prints a record or a result: its JSON, or what ``show`` prints of it."""
        if self.json:
            render.line(found.to_json(indent=2))
        else:
            show()


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(OutputOptions):
    """Output options of a single answer."""

    printed: Annotated[
        Literal["table", "json"],
        typer.Option("--print", "-o", help="As tables and sentences, or as JSON."),
    ] = "table"  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class FollowOptions(AnswerOptions):
    """Output options of an answer that takes a while, and of its progress."""

    printed: Annotated[
        Literal["table", "wide", "json"],
        typer.Option(
            "--print",
            "-o",
            help="As tables and sentences; with every row and both populations (wide); as JSON.",
        ),
    ] = "table"  # type: ignore[assignment]
    quiet: Quiet = False

    @property
    def wide(self) -> bool:
        """Whether the intervals of both populations are wanted."""
        return self.form is Format.WIDE


def _target_before(context: typer.Context, value: str | None) -> str | None:
    source = context.get_parameter_source("target")
    before: str | None = context.find_root().params.get("target")
    after = source is not None and source.name == "COMMANDLINE"
    return value if after else before or value


@dataclass(frozen=True, kw_only=True)
class FileServer(Options):
    """The server to ask, where a sweep file may name one too, and the caller's credentials.

    An API key has a variable only: others on the host see flags.
    """

    target: Annotated[
        str | None,
        typer.Option(
            envvar="ACPC_TARGET",
            metavar="HOST:PORT",
            help=f"The server; several: A:PORT,B:PORT [a sweep file's, or {DEFAULT_TARGET}].",
            callback=_target_before,
        ),
    ] = None
    tls_ca: Annotated[
        Path | None, _file("ACPC_TLS_CA", "PEM file of the certificate authority; turns TLS on.")
    ] = None
    tls_name: Annotated[
        str | None, _credential("ACPC_TLS_NAME", "Name in the server's certificate; turns TLS on.")
    ] = None
    client_certificate: Annotated[
        Path | None, _file("ACPC_CLIENT_CERTIFICATE", "PEM file with your certificate.")
    ] = None
    client_key: Annotated[Path | None, _file("ACPC_CLIENT_KEY", "PEM file with its key.")] = None
    token_file: Annotated[
        Path | None,
        _file("ACPC_TOKEN_FILE", "File with a bearer token or API key; else ACPC_API_KEY has one."),
    ] = None
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Send the token in plain text to another host, too.",
            rich_help_panel=SERVER,
        ),
    ] = False

    def access(self) -> Access:
        """Returns the connection options as ``Access``."""
        names = ("tls_ca", "tls_name", "client_certificate", "client_key", "token_file")
        options = {name: getattr(self, name) for name in names}
        made = make_access(**options, api_key=os.environ.get("ACPC_API_KEY"))
        return {**made, "insecure": True} if self.insecure else made

    def client(self, target: str | None, access: Access, **options: Any) -> AcpcClient:  # noqa: ANN401
        """A client; ``target`` and ``access`` are those of the file."""
        known: Access = {**access, **self.access()}
        return AcpcClient(self.target or target or DEFAULT_TARGET, **known, **options)


@dataclass(frozen=True, kw_only=True)
class Server(FileServer):
    """The server that a command asks, and how long it is waited for."""

    timeout: Timeout = None
    patience: Patience = None

    @contextmanager
    def connect(self) -> Iterator[AcpcClient]:
        """A client for one command; what it raises is printed and becomes an exit code."""
        waits = {"timeout": self.timeout, "patience": self.patience}
        with reported(), self.client(None, {}, **waits, on_away=render.presence) as client:
            yield client


@contextmanager
def interruptible(*words: str) -> Iterator[None]:
    """At Ctrl-C prints how to go on, a line each, and ends the command with its exit code."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        for line in words:
            render.note(line)
        raise typer.Exit(Exit.INTERRUPTED) from interrupt


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


def suffix_of(formats: Sequence[str]) -> Callable[[Path | None], Path | None]:
    """Checks that a path ends in one of the formats and that its folder takes files."""

    def check(path: Path | None) -> Path | None:
        if path is not None and path.suffix not in formats:
            wanted = ", ".join(formats)
            raise typer.BadParameter(
                f"found {path.name!r}, wanted a name ending in one of {wanted}"
            )
        return require_folder(path)

    return check


def output_option(help: str, formats: Sequence[str] = FORMATS, *flags: str) -> Any:  # noqa: ANN401
    """An option with the file to write."""
    return typer.Option(
        *flags, dir_okay=False, writable=True, callback=suffix_of(formats), help=help
    )


GateOption = Annotated[
    Gate,
    typer.Option(
        help="What decides the exit code. point: the numbers; confident: their intervals, which "
        "may leave it undecided (exit 5)."
    ),
]
_EXACT = ".json to read; .npz to load again exactly."
AnchorValues = Annotated[
    bool, typer.Option("--anchor-values", help="With the values of every anchor in the JSON.")
]
ScoreOutput = Annotated[Path | None, output_option(f"Also write the score here: {_EXACT}")]
AnswerOutput = Annotated[Path, output_option(f"Where to: {_EXACT}")]
_SHIFT = "The visual change, as gaussian_noise:0.08 or blur:15; `acpc shifts` lists all."
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

    Raises typer.BadParameter: One names none; the message lists the choices.
    """
    with as_usage("--shift"):
        return [shift for text in texts for shift in parse_grid(text)]


@contextmanager
def as_usage(option: str) -> Iterator[None]:
    """Turns an ArgumentError into wrong usage of the option."""
    try:
        yield
    except ArgumentError as error:
        wrong = error.violations[0].description
        raise typer.BadParameter(wrong, param_hint=option) from error


@contextmanager
def reported() -> Iterator[None]:
    """Prints errors that are raised within, and exits with their code."""
    try:
        yield
    except AcpcError as error:
        render.error(error)
        code = Exit.USAGE if isinstance(error, ArgumentError) else Exit.ERROR
        raise typer.Exit(code) from error
    except OSError as error:
        if error.errno == errno.EPIPE:  # whoever read along has left, which typer knows to end
            raise
        where = f"{error.filename}: " if error.filename else ""
        render.error(FailedPrecondition(f"{where}{error.strerror or error}"))
        raise typer.Exit(Exit.ERROR) from error


Mode = Annotated[Any, sets(ScoreRequest, "numeric_mode")]
WeightsOption = Annotated[str, sets(CheckpointRef, "weights", panel=CHECKPOINT)]
Digest = Annotated[str, sets(CheckpointRef, "digest", panel=CHECKPOINT)]


def _listed(episodes: str | None) -> str | None:
    """Episodes as they are given, or those that a file here lists, a few on each line.

    Raises typer.BadParameter: The file cannot be read.
    """
    if episodes is None or not episodes.startswith("@"):
        return episodes
    try:
        return ",".join(Path(episodes[1:]).read_text("utf-8").replace(",", " ").split())
    except (OSError, UnicodeDecodeError) as error:
        wrong = f"cannot read {episodes[1:]}: {error}"
        raise typer.BadParameter(wrong, param_hint="--episodes") from error


@dataclass(frozen=True, kw_only=True)
class AnchorDraw(Options):
    """How anchors are drawn from a dataset."""

    anchors: Annotated[int | None, sets(DatasetAnchors, "count", "--anchors", panel=None)] = None
    anchor_seed: Annotated[int | None, sets(DatasetAnchors, "seed", "--anchor-seed")] = None
    frameskip: Annotated[int | None, sets(DatasetAnchors, "frameskip")] = None
    one_per_episode: Annotated[
        bool | None,
        sets(DatasetAnchors, "one_per_episode", "--one-per-episode/--many-per-episode"),
    ] = None
    window_future_frames: Annotated[int | None, sets(DatasetAnchors, "window_future_frames")] = None
    sample: Annotated[Any, sets(DatasetAnchors, "sample")] = None
    episodes: Annotated[
        str | None, sets(DatasetAnchors, "episodes", panel=None, metavar="WORDS|@FILE")
    ] = None

    def drawn(self) -> dict[str, Any]:
        """Returns the given options by the names of ``DatasetAnchors``."""
        return given(
            count=self.anchors,
            seed=self.anchor_seed,
            frameskip=self.frameskip,
            one_per_episode=self.one_per_episode,
            window_future_frames=self.window_future_frames,
            sample=self.sample,
            episodes=_listed(self.episodes),
        )
