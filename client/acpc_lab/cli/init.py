"""``acpc init``."""

from pathlib import Path
from typing import Annotated

import typer
from acpc.contract import ArgumentError
from acpc.datasets import FORMATS

from acpc_lab.cli import render
from acpc_lab.cli.command import Options
from acpc_lab.cli.options import require_folder
from acpc_lab.datasets import TaskChoice, columns_of, open_dataset, proposed
from acpc_lab.sweeps import example
from acpc_lab.tables import Quantity, write_whole

_KNOWN = ("pixels", "action", "state", "frameskip", "history")
_COLUMNS = (
    Quantity("column", "name"),
    Quantity("holds", "kind"),
    Quantity("shape", lambda one: str(one.shape or one.why)),
)


class Init(Options):
    """Writes a file to begin with: a task file for a dataset, or a sweep file.

    Of a dataset it prints the columns with their shapes, and proposes which are frames, actions and
    states. What a dataset cannot tell is marked CHECK in the file, with what it depends on: look at
    these lines before you believe a score. The file is written when the server can read by it.
    Of a dataset that lies at the server alone, give the command there.

    **Examples**

        acpc init rooms.h5 --frameskip 5
        acpc init arm.lance --state proprio --labels 0,1,2 --out arm.yaml
        acpc score lewm-rooms --dataset rooms.h5 --task rooms.yaml --shift blur:15
        acpc init sweep.yaml

    `acpc score` finds the task file below the server's dataset root; `acpc anchors upload` takes it
    from here. The sweep file has every key in it, explained.

    Attributes:
        source: A dataset here, an HDF5 file or a folder; or the sweep file to write.
        out: The task file to write [NAME.yaml].
        pixels: Column of frames [proposed].
        action: Column of actions [proposed].
        state: Column whose row at the last frame is the endpoint state [proposed].
        frameskip: Environment steps between kept frames. No dataset says it: frameskip x action
            width is the width of the action blocks that the checkpoint was trained on [5, marked
            CHECK].
        history: Frames of history.
        labels: Coordinates of the state, from 0, whose median splits say which states are
            different, for SR [the first two, marked CHECK].
        force: Overwrite the task file.
    """

    source: Annotated[Path, typer.Argument(metavar="DATASET|SWEEP.YAML")]
    out: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    format: Annotated[
        str, typer.Option(help=f"One of {', '.join(FORMATS)} [recognised by what lies there].")
    ] = ""
    pixels: str | None = None
    action: str | None = None
    state: str | None = None
    frameskip: Annotated[int | None, typer.Option(min=1, max=1000)] = None
    history: Annotated[int, typer.Option(min=1, max=1000)] = 3
    labels: Annotated[str | None, typer.Option(metavar="A,B,...")] = None
    force: bool = False

    def __call__(self) -> None:
        to_sweep = self.source.suffix in (".yaml", ".yml")
        target = self.source if to_sweep else self.out or Path(f"{self.source.stem}.yaml")
        if target.exists() and not self.force:
            raise ArgumentError(str(target), "is there; give --force to overwrite it, or --out")
        require_folder(target)
        if to_sweep:
            write_whole(target, example(target).encode())
            render.line(f"{target}: written; change it, then run: acpc sweep show --plan {target}")
        else:
            self._task(target)

    def _task(self, target: Path) -> None:
        if not self.source.exists():
            wrong = "is not here; if it lies at the server alone, give the command there"
            raise ArgumentError(str(self.source), wrong)
        known = {name: getattr(self, name) for name in _KNOWN}
        try:
            labels = tuple(map(int, self.labels.split(","))) if self.labels else None
        except ValueError as error:
            wrong = f"found {self.labels!r}, wanted numbers like 1,2"
            raise ArgumentError("--labels", wrong) from error
        chosen = TaskChoice(self.source.stem[:100], labels=labels, **known)
        with open_dataset(self.source, self.format) as opened:
            columns = columns_of(opened)
            render.show(_COLUMNS, columns)
            text, sentences = proposed(opened, columns, chosen)
            write_whole(target, text.encode())
        count = text.count("CHECK")
        left = f"; lines marked CHECK are yours to decide: {count}" if count else ""
        for sentence in (*sentences, f"{target}: written, and a server can read by it{left}"):
            render.line(sentence)
