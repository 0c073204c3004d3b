"""``acpc list``, ``show``, ``cancel``, ``delete`` and ``load``: what a server holds."""

import contextlib
import json
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Literal

import typer
from acpc.contract import CHOICES, KINDS, about, example, severity_range
from acpc_client import (
    AcpcClient,
    Checkpoint,
    Operation,
    save_result,
    status_of,
)
from acpc_client.errors import NotFound

from acpc_lab.cli import render
from acpc_lab.cli.anchors import ANCHOR_SETS, mebibytes, show_anchor_set
from acpc_lab.cli.follow import finish, follow, study_line
from acpc_lab.cli.gates import ScoreOptions
from acpc_lab.cli.options import (
    CheckpointName,
    Printed,
    Server,
    checkpoint_of,
    job_name,
)
from acpc_lab.cli.render import DIGITS, source_of
from acpc_lab.cli.table import WIDE, Format
from acpc_lab.tables import Quantity

_NAME = "A job: operations/ID, the ID or a beginning of it, its request id, or latest"
# Lists leave answers out: so many of the newest jobs are looked up for their verdicts.
_VERDICTS = 50
_SHIFTS = tuple(
    Quantity(name, itemgetter(name), rank=rank)
    for name, rank in (("shift", 0), ("range", 2), ("example", 1), ("what", 0))
)


def _moment(at: datetime | None) -> str:
    return "-" if at is None else f"{at.astimezone(UTC):%Y-%m-%dT%H:%MZ}"


def _done(item: Operation) -> str:
    progress = item.progress
    return f"{progress.completed}/{progress.total} {progress.phase}".strip()


_CHECKPOINTS = (
    Quantity("name", "name"),
    Quantity("state", lambda x: x.state.name.lower() + (", pinned" if x.pinned else ""), rank=1),
    Quantity("weights", "weights", rank=2),
    Quantity("MiB", mebibytes, rank=3),
    Quantity("family", lambda item: item.model.family if item.model else "-", rank=4),
    Quantity("digest", lambda x: x.model.digest if x.model else "-", rank=5, short=DIGITS),
)
_DATASETS = (
    Quantity("name", "name"),
    Quantity("format", lambda one: one.format or "hdf5", rank=1),
    Quantity("MiB", mebibytes, rank=2),
)
_TASKS = (
    Quantity("name", "name"),
    Quantity("columns", lambda x: f"{x.pixels}, {x.action}, {x.state}" if x.state else "-", rank=2),
    Quantity("frameskip", lambda x: str(x.frameskip) if x.state else "-", rank=3),
    Quantity("what", lambda item: item.description or "a task file; see docs/tasks.md", rank=1),
)
_OPERATIONS = (
    Quantity("name", "name", short=len("operations/") + 8),
    Quantity("checkpoint", lambda item: item.checkpoint.name or "-", rank=1),
    Quantity("shift", lambda item: item.request.shift if item.request else "-", rank=2),
    Quantity(
        "verdict", lambda item: item.score.verdict.outcome.name if item.score else "-", rank=1
    ),
    Quantity("state", lambda item: item.state.name.lower()),
    Quantity("progress", _done, rank=4),
    Quantity("created", lambda item: _moment(item.create_time), rank=3),
    Quantity("caller", lambda item: item.caller or "-", rank=5),
    Quantity("anchors from", source_of, rank=WIDE),
    Quantity("ended", lambda item: _moment(item.end_time), rank=WIDE),
    Quantity("attempts", "attempts", rank=WIDE),
)


class List(Printed, Server):
    """Lists what a server holds, and what options can name.

    `checkpoints`, `datasets` (for `--dataset`; of those that are no HDF5 file `acpc anchors upload`
    makes anchor sets), `tasks` (for `--task`: presets, and files below the dataset root), `shifts`
    (for `--shift`; asks no server), `anchor-sets` and `jobs`, both newest first.

    **Examples**

        acpc list checkpoints --all
        acpc list jobs --filter 'state=failed AND created>=2026-01-31T08:00:00Z'

    Attributes:
        what: What to list.
        filter: Of jobs: terms joined by AND: state=failed, kind=score_checkpoint, checkpoint=NAME,
            created>=2026-01-31T08:00:00Z.
        show_all: Also folders that cannot be loaded: why, and what to run.
    """

    what: Literal["checkpoints", "datasets", "tasks", "shifts", "anchor-sets", "jobs"]
    filter: str = ""
    show_all: Annotated[bool, typer.Option("--all")] = False

    def __call__(self) -> None:
        if self.what == "shifts":
            listed = []
            for choice in CHOICES:
                cls = KINDS[choice.partition(":")[0]]
                what = about(cls).partition(". ")[0].removesuffix(".")
                cells = {"range": severity_range(cls), "example": example(cls), "what": what}
                listed.append({"shift": choice, **cells})
            render.listing(listed, _SHIFTS, self.form, dict)
            return
        with self.connect() as client:
            match self.what:
                case "checkpoints":
                    self._checkpoints(client)
                case "datasets":
                    self._datasets(client)
                case "tasks":
                    render.listing(client.datasets.tasks(), _TASKS, self.form)
                case "anchor-sets":
                    render.listing(client.anchors.list(), ANCHOR_SETS, self.form)
                case "jobs":
                    self._jobs(client)

    def _checkpoints(self, client: AcpcClient) -> None:
        found = client.checkpoints.list(show_all=self.show_all)
        good = found if self.json else [one for one in found if not one.problem]
        render.listing(good, _CHECKPOINTS, self.form)
        for one in found if not self.json else ():
            if one.problem:
                command = f"; next: {one.next_command}" if one.next_command else ""
                render.prose(f"{one.name}: {one.problem}{command}")

    def _datasets(self, client: AcpcClient) -> None:
        listed = client.datasets.list()
        render.listing(listed, _DATASETS, self.form)
        other = [one.name for one in listed if one.format not in ("", "hdf5")]
        if other:
            render.note(f"servers read hdf5; of others: acpc anchors upload {other[0]} --task TASK")

    def _jobs(self, client: AcpcClient) -> None:
        listed = client.operations.list(filter=self.filter)
        if not self.json:
            judged = [at for at, one in enumerate(listed) if one.request and one.error is None]
            for at in judged[:_VERDICTS]:
                with contextlib.suppress(NotFound):  # deleted since
                    listed[at] = client.operations.get(listed[at].name)
        named = self.wide or any(item.caller for item in listed)
        columns = [one for one in _OPERATIONS if named or one.name != "caller"]
        render.listing(listed, columns, self.form, lambda item: status_of(item).to_dict())


class Show(ScoreOptions, Server):
    """Shows one checkpoint, anchor set or job, and a job's answer when it has one.

    `--wait` follows a job to its end, and exits as `acpc score` does. `--out` keeps its answer with
    what was asked; `acpc_client.load_result` reads it. A checkpoint's model is known once it is
    loaded.

    **Examples**

        acpc show job latest
        acpc show job 5f0c9a --wait --gate confident
        acpc show job 5f0c9a --out score.npz
        acpc show checkpoint lewm-tworooms
        acpc show anchor-set latest --contents -o json

    Attributes:
        what: What it is.
        wait: Follow the job to its end.
        contents: States and labels of the anchor set, and how far they lie apart.
    """

    what: Literal["checkpoint", "anchor-set", "job"]
    name: Annotated[
        str,
        typer.Argument(
            help=f"{_NAME}. An anchor set: its digest or a beginning of it, the request id of its "
            "upload, or latest. A checkpoint: NAME[:FILE]."
        ),
    ]
    wait: bool = False
    contents: bool = False

    def __call__(self) -> None:
        with self.connect() as client:
            getattr(self, f"_{self.what.replace('-', '_')}")(client)

    def _checkpoint(self, client: AcpcClient) -> None:
        show_checkpoint(client.checkpoints.get(checkpoint_of(self.name)), self.form)

    def _anchor_set(self, client: AcpcClient) -> None:
        found = client.anchors.get(self.name)
        inside = client.anchors.contents(self.name) if self.contents else None
        if inside is not None and self.json:
            render.line(json.dumps({**found.to_dict(), "contents": inside.to_dict()}, indent=2))
        elif self.form is Format.CSV:
            render.listing([found], ANCHOR_SETS, self.form)
        else:
            self.answer(found, lambda: show_anchor_set(found, inside))

    def _job(self, client: AcpcClient) -> None:
        name = job_name(self.name)
        if self.wait:
            finish(follow(client, name, timeout=self.timeout, out=self.out), self)
        operation = client.operations.get(name)
        if self.out is not None:
            if operation.study is None:
                operation.result()  # raises why there is none
            save_result(operation, self.out)
            render.line(f"{operation.name}: {self.out}")
            return
        if self.json:
            render.result(status_of(operation))
            return
        if operation.score is not None and self.form is Format.CSV:
            render.score(operation.score, wide=True)
            return
        if operation.score is not None:
            render.score(operation.score, asked=render.asked(operation), wide=self.wide)
        render.listing([operation], _OPERATIONS, self.form)
        if operation.phase_seconds and self.form is not Format.CSV:
            spent = sorted(operation.phase_seconds.items(), key=lambda one: -one[1])
            phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in spent)
            render.prose(f"seconds by phase: {phases}")
        if operation.study is not None:
            render.prose(study_line(operation.study))
        if operation.error is not None:
            render.prose(f"{operation.error.code}: {operation.error.message}")


def show_checkpoint(checkpoint: Checkpoint, form: Format) -> None:
    """One checkpoint, and its model when it is loaded."""
    if form is Format.JSON:
        render.line(checkpoint.to_json(indent=2))
        return
    render.listing([checkpoint], _CHECKPOINTS, form)
    card = checkpoint.model
    if card is not None:
        render.prose(f"digest {card.digest}")
        if card.model_digest:
            render.prose(f"model  {card.model_digest}")
        render.prose(
            f"{card.parameter_count} parameters, {card.image_size} px input, "
            f"latent width {card.latent_dim}, history {card.history}, "
            f"action block width {card.action_block_dim}"
        )


class Load(Printed, Server):
    """Reads a checkpoint onto the device, or frees its memory there.

    **Example**

        acpc load lewm-tworooms --pin

    Attributes:
        pin: Keep it until it is unloaded.
        unload: Free its memory instead.
    """

    checkpoint: CheckpointName
    pin: bool = False
    unload: bool = False

    def __call__(self) -> None:
        if self.pin and self.unload:
            raise typer.BadParameter("--pin and --unload exclude each other")
        named = checkpoint_of(self.checkpoint)
        with self.connect() as client:
            if self.unload:
                now = client.checkpoints.unload(named)
            else:
                now = client.checkpoints.load(named, pin=self.pin).checkpoint
        show_checkpoint(now, self.form)


class Cancel(Server):
    """Asks for a job, or for every job of a sweep, to be cancelled; each ends as soon as it can.

    `acpc sweep run` takes the sweep up again.

    **Examples**

        acpc cancel latest
        acpc cancel sweep.yaml
    """

    name: Annotated[str, typer.Argument(metavar="JOB|SWEEP.YAML", help=f"{_NAME}. Or a sweep.")]

    def __call__(self) -> None:
        if self.name.endswith((".yaml", ".yml")) or Path(self.name).is_file():
            from acpc_lab.sweeps import Sweep  # noqa: PLC0415  slow to import

            sweep = Sweep.load(Path(self.name))
            with self.connect() as client:
                asked = sweep.cancel(client)
            render.line(f"{asked} cancellations requested")
            return
        with self.connect() as client:
            before = client.operations.get(job_name(self.name))
            client.operations.cancel(before.name)
            now = client.operations.get(before.name)
        said = now.state.name.lower() if now.done else "cancellation requested"
        render.line(f"{before.name}: {'has ended already: ' if before.done else ''}{said}")


class Delete(Server):
    """Removes an anchor set that no job needs, or forgets a job that has ended.

    **Example**

        acpc delete job 5f0c9a

    Attributes:
        what: What it is.
        name: Named as to `acpc show`.
    """

    what: Literal["anchor-set", "job"]
    name: str

    def __call__(self) -> None:
        with self.connect() as client:
            if self.what == "anchor-set":
                client.anchors.delete(self.name)
                name = self.name
            else:
                name = client.operations.get(job_name(self.name)).name
                client.operations.delete(name)
        render.line(f"{name}: deleted")
