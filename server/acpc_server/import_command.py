"""acpc-server import: what training wrote becomes folders that the server reads."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from acpc.command_line import reported
from acpc.console import CommandGroup, Console
from rich.table import Table

from acpc_server.errors import AcpcError, AlreadyExists, FailedPrecondition, shortage
from acpc_server.importing import Run, find_run, find_runs

OUT = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
ERR = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)
# What every program of the server's is made with.
PROGRAM: dict[str, Any] = {
    "cls": CommandGroup,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "markdown",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

Asked = Mapping[str, int | str | None]
Config = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="config of the run, where it lies elsewhere"),
]
Frameskip = Annotated[
    int | None, typer.Option(min=1, help="env steps of an action block, where no file says it")
]
ActionDim = Annotated[
    int | None, typer.Option(min=1, help="coordinates of one action, instead of --frameskip")
]
Family = Annotated[
    Literal["lewm", "pldm"] | None, typer.Option(help="where no file says it; default: lewm")
]
WeightsKey = Annotated[
    str | None,
    typer.Option(help="path in the file of the weights that are meant, where it holds several, as "
                 "current_model_state or callbacks.EMA.ema_state_dict"),
]  # fmt: skip
Backbone = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="DINOv2's weights, for dino_wm's files"),
]
All = Annotated[
    bool,
    typer.Option(
        "--all",
        help="import every run below SOURCE into a folder below TARGET; those imported before are "
        "left, so that it can be resumed",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="show what was found, and write nothing")]


def import_run(  # noqa: PLR0913 - its options
    source: Annotated[
        str,
        typer.Argument(help="run folder, weights file, hub cache folder, or hf:USER/REPO[@COMMIT]"),
    ],
    target: Annotated[Path, typer.Argument(help="folder to write; must not exist")],
    config: Config = None,
    frameskip: Frameskip = None,
    action_dim: ActionDim = None,
    family: Family = None,
    backbone: Backbone = None,
    weights_key: WeightsKey = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(help="of the Hub: weights files to take, as names or patterns; repeatable"),
    ] = None,
    every: All = False,
    dry_run: DryRun = False,
) -> None:
    """Turn what training wrote, or a model on the Hub, into a checkpoint folder.

    Executes nothing that it reads, and goes to no network but for hf:USER/REPO: it downloads the
    files of one commit, and goes on with them when it is run again. HF_TOKEN and HF_ENDPOINT mean
    what they mean to huggingface_hub.

    Reads whole pickled models (`*_object.ckpt`), Lightning's files, state dicts and a hub's cache
    as data. All epochs of a run become one folder, with source.json: what was read, and where each
    number comes from.

        acpc-server import runs/lewm-tworooms ~/checkpoints/lewm-tworooms

        acpc-server import --all runs ~/checkpoints

        acpc-server import hf:quentinll/lewm-pusht ~/checkpoints/lewm-pusht
    """
    asked: Asked = {
        "frameskip": frameskip, "action_dim": action_dim, "family": family,
        "backbone": str(backbone) if backbone else None, "weights_key": weights_key,
    }  # fmt: skip
    if source.startswith("hf:"):
        from acpc_server.importing.hub import download  # noqa: PLC0415 - few imports go there

        run = download(source, weights or ["*"], target, OUT.print, dry_run)
        if run is not None:
            import_files(run, target, asked)
            shutil.rmtree(run.place)
    elif every:
        _import_all(Path(source), target, asked, dry_run)
    else:
        import_files(find_run(Path(source), config), target, asked, dry_run)


def _import_all(source: Path, target: Path, asked: Asked, dry_run: bool) -> None:
    """Import run after run; one that cannot be imported is reported, and the command fails."""
    failed = 0
    runs = list(find_runs(source))
    for place, (name, folder) in enumerate(runs, 1):
        OUT.print(f"{place} of {len(runs)}: {name}")
        try:
            run = find_run(folder)
            if _imported(run, target / name):
                OUT.print("  imported before, unchanged")
            else:
                import_files(run, target / name, asked, dry_run)
        except Exception as error:  # noqa: BLE001 - an odd run does not keep the others
            failed += 1
            told = error.message if isinstance(error, AcpcError) else f"{name}: {error!r:.500}"
            ERR.print(f"  {told}")
    OUT.print(f"{len(runs) - failed} of {len(runs)} runs are imported")
    if failed:
        raise typer.Exit(1)


def import_files(run: Run, target: Path, asked: Asked, dry_run: bool = False) -> None:
    """Look through the run's files, then plan, show and write."""
    from acpc_server.importing.reading import read_run  # noqa: PLC0415 - loads torch
    from acpc_server.importing.writing import plan_import, write_import  # noqa: PLC0415

    files = read_run(run, str(asked.get("weights_key") or ""))
    plan = plan_import(run, files, asked)
    table = Table(title=f"{run.place}: {plan.family}", box=None)
    for column in ("number", "value", "from"):
        table.add_column(column, overflow="fold")
    for name, (value, origin) in sorted(plan.numbers.items()):
        table.add_row(name, str(value), origin)
    for file in files:
        table.add_row("weights", file.target, file.path.name)
    OUT.print(table)
    for file in files:
        if file.found is not None and file.found.others:
            taken, others = file.found.path or "the top level", ", ".join(file.found.others)
            OUT.print(
                f"{file.path.name}: takes the weights at {taken}; it also holds {others}, "
                "which --weights-key takes"
            )
    if dry_run:
        OUT.print("nothing was written (--dry-run)")
        return
    try:
        card = write_import(run, files, plan, target, lambda text: OUT.print(f"  {text}"))
    except OSError as error:
        raise FailedPrecondition(f"{target}: cannot be written: {error.strerror}") from error
    OUT.print(f"wrote {target} ({card.family}, digest {card.digest})")


def _imported(run: Run, target: Path) -> bool:
    """Tell whether a run was imported there from the same files; AlreadyExists: from others."""
    if not target.exists():
        return False
    try:
        before = json.loads((target / "source.json").read_text())["read"]
    except (OSError, ValueError, LookupError, TypeError):
        before = None
    now = {x.name: [x.stat().st_size, x.stat().st_mtime_ns] for x in run.files}
    if before == now:
        return True
    raise AlreadyExists(
        f"{target} exists, from other files; move it away, or import the run to another folder",
        reason="FOLDER_EXISTS",
    )


def answered(app: typer.Typer) -> None:
    """Run a command line; what it or the system rejects is one line and exit code 1."""
    command: Any = typer.main.get_command(app)
    _plain_flags(command)
    try:
        with reported(lambda why: ERR.print(f"FAILED_PRECONDITION: {why}")):
            command(prog_name="acpc-server")
    except Exception as error:
        told = error if isinstance(error, AcpcError) else shortage(error)
        if told is None:
            raise
        why = "" if told is error else f" ({error})"
        ERR.print(f"{told.code}: {told.message}{why}")
        sys.exit(1)


def _plain_flags(command: Any, parent: Any = None) -> None:  # noqa: ANN401 - click's, of typer
    """Leave out of helps that a flag is a truth value, which newer releases of typer write."""
    context = command.context_class(command, parent=parent, **command.context_settings)
    for param in command.get_params(context):
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        _plain_flags(inner, context)


def main() -> None:
    """Entry point of ``acpc-server import``, which loads less than the other commands."""
    app = typer.Typer(**PROGRAM)
    app.callback()(lambda: None)
    app.command("import")(import_run)
    answered(app)
