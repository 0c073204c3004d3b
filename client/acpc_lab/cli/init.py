"""``acpc init``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from acpc.datasets import FORMATS

from acpc_lab.cli import render
from acpc_lab.cli.command import Options, read_numbers
from acpc_lab.cli.options import reported, require_folder
from acpc_lab.tables import write_whole

_ASK = "[proposed]"
_KNOWN = ("pixels", "action", "state", "frameskip", "history")


@dataclass(frozen=True, kw_only=True)
class Init(Options):
    """Writes a task file for a dataset: which columns are frames, actions and states.

    Prints the columns with their shapes and proposes a task. What a dataset cannot tell is marked
    CHECK in the file, with what it depends on: look at these lines before you believe a score.
    The file is written when anchors can be drawn by it, with the code that the server reads by.
    Of a dataset that lies at the server alone, give the command there.

    **Examples**

        acpc init rooms.h5 --frameskip 5
        acpc init arm.lance --state proprio --labels 0,1,2 --output arm.yaml
        acpc score lewm-rooms --dataset rooms.h5 --task rooms.yaml --shift blur:15

    The last one finds the file below the server's dataset root; `acpc anchors upload` takes it
    from here.

    **Exit codes**: 0 written; 1 the dataset cannot be read so; 2 wrong usage, a column that is not
    there, or a file that is.
    """

    dataset: Annotated[Path, typer.Argument(help="A dataset here: an HDF5 file, or a folder.")]
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The task file to write [NAME.yaml].")
    ] = None
    format: Annotated[
        str, typer.Option(help=f"One of {', '.join(FORMATS)} [recognised by what lies there].")
    ] = ""
    pixels: Annotated[str | None, typer.Option(help=f"Column of frames {_ASK}.")] = None
    action: Annotated[str | None, typer.Option(help=f"Column of actions {_ASK}.")] = None
    state: Annotated[
        str | None,
        typer.Option(help=f"Column whose row at the last frame is the endpoint state {_ASK}."),
    ] = None
    frameskip: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="Environment steps between kept frames. No dataset says it: frameskip x action "
            "width is the width of the action blocks that the checkpoint was trained on [5, "
            "marked CHECK].",
        ),
    ] = None
    history: Annotated[int, typer.Option(min=1, max=1000, help="Frames of history.")] = 3
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Coordinates of the state, from 0, whose median splits say which states are "
            "different, for SR [the first two, marked CHECK].",
        ),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Overwrite the task file.")] = False

    def run(self) -> None:
        """Prints the columns, and writes the task file."""
        from acpc_lab.datasets import (  # noqa: PLC0415  slow to import
            TaskChoice,
            columns_of,
            open_dataset,
            proposed,
        )

        if not self.dataset.exists():
            wrong = (
                f"{self.dataset} is not here; if it lies at the server alone, give the command "
                "there"
            )
            raise typer.BadParameter(wrong, param_hint="DATASET")
        stem = self.dataset.stem
        target = self.output or Path(f"{stem}.yaml")
        if target.exists() and not self.force:
            wrong = f"{target} is there; give --force to overwrite it, or --output"
            raise typer.BadParameter(wrong)
        require_folder(target)
        labels = None if self.labels is None else read_numbers(self.labels, int, "--labels")
        known = {name: getattr(self, name) for name in _KNOWN}
        chosen = TaskChoice(stem[:100], **known, labels=labels)
        with reported(), open_dataset(self.dataset, self.format) as opened:
            columns = columns_of(opened)
            rows = [[one.name, one.kind, str(one.shape or one.why)] for one in columns]
            render.table(["column", "holds", "shape"], rows)
            text, sentences = proposed(opened, columns, chosen)
            write_whole(target, text.encode())
        for sentence in sentences:
            render.line(sentence)
        open_questions = text.count("CHECK")
        left = f"; marked CHECK, yours to decide: {open_questions}" if open_questions else ""
        render.line(f"{target}: written, and anchors can be drawn by it{left}")
