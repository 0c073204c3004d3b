"""``acpc list``, ``show``, ``cancel``, ``delete`` and ``load``: what a server holds."""

import contextlib
from pathlib import Path
from typing import Annotated, Literal

import typer
from acpc.contract import CHOICES, KINDS, about, example, severity_range
from acpc_client import AcpcClient, Operation, save_result, status_of
from acpc_client.errors import ArgumentError, NotFound

from acpc_lab.cli import render
from acpc_lab.cli.anchors import ANCHOR_SET, ANCHOR_SETS, MEBIBYTES, contents_of
from acpc_lab.cli.connection import Server
from acpc_lab.cli.follow import ScoreOptions, finish, follow
from acpc_lab.cli.options import CheckpointName, Printed, checkpoint_of, job_name
from acpc_lab.cli.render import Format, source_of, study_line
from acpc_lab.tables import Quantity

_NAME = "A job: operations/ID, the ID or a beginning of it, its request id, or latest"
# Lists leave answers out: so many of the newest jobs are looked up for their verdicts.
_VERDICTS = 50
_MOMENT = "%Y-%m-%dT%H:%MZ"
_SHIFTS = (
    Quantity("shift", "shift"),
    Quantity("what", "what", most=42),
    Quantity("range", "range", wide=True),
    Quantity("example", "example", wide=True),
)


def _state(item: Operation) -> str:
    """The state, of a job under way with how much of it is done."""
    progress = item.progress
    done = "" if item.done else f" {progress.completed}/{progress.total}"
    return f"{item.state.name.lower()}{done}"


_CHECKPOINTS = (
    Quantity("name", "name"),
    Quantity("state", lambda x: x.state.name.lower() + (", pinned" if x.pinned else "")),
    Quantity("weights", "weights"),
    MEBIBYTES,
    Quantity("family", "model.family", wide=True),
    Quantity("digest", "model.digest", wide=True),
)
_MODEL = (
    Quantity("model digest", "model.model_digest"),
    Quantity("parameters", "model.parameter_count"),
    Quantity("input pixels", "model.image_size"),
    Quantity("latent width", "model.latent_dim"),
    Quantity("history", "model.history"),
    Quantity("action block width", "model.action_block_dim"),
    Quantity("content", "content"),
    Quantity("problem", "problem"),
)
_DATASETS = (
    Quantity("name", "name"),
    Quantity("format", lambda one: one.format or "hdf5"),
    MEBIBYTES,
)
_TASKS = (
    Quantity("name", "name"),
    Quantity("what", lambda item: item.description or "a task file; see docs/tasks.md", most=55),
    Quantity(
        "columns", lambda x: f"{x.pixels}, {x.action}, {x.state}" if x.state else "-", wide=True
    ),
    Quantity("frameskip", lambda x: str(x.frameskip) if x.state else "-", wide=True),
)
_PHASES = (
    Quantity("seconds by phase", lambda item: ", ".join(
        f"{name} {seconds:.2f}"
        for name, seconds in sorted(item.phase_seconds.items(), key=lambda one: -one[1]))),
    Quantity("answer", lambda item: item.study and study_line(item.study)),
    Quantity("error", lambda item: item.error and f"{item.error.code}: {item.error.message}"),
)  # fmt: skip
_OPERATIONS = (
    Quantity("name", "name", most=len("operations/") + 8),
    Quantity("checkpoint", "checkpoint.name"),
    Quantity("shift", lambda item: item.request.shift if item.request else "-"),
    Quantity("verdict", lambda item: item.score.verdict.outcome.name if item.score else "-"),
    Quantity("state", _state),
    Quantity("phase", "progress.phase", wide=True),
    Quantity("created", "create_time", _MOMENT, wide=True),
    Quantity("caller", "caller", wide=True),
    Quantity("anchors from", source_of, wide=True),
    Quantity("ended", "end_time", _MOMENT, wide=True),
    Quantity("attempts", "attempts", wide=True),
)  # fmt: skip


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
            render.listing(listed, _SHIFTS, dict)
            return
        with self.connect() as client:
            match self.what:
                case "checkpoints":
                    self._checkpoints(client)
                case "datasets":
                    found = client.datasets.list()
                    render.listing(found, _DATASETS)
                    other = [one.name for one in found if one.format not in ("", "hdf5")]
                    if other:
                        upload = f"acpc anchors upload {other[0]} --task TASK"
                        render.note(f"servers read hdf5; of others: {upload}")
                case "tasks":
                    render.listing(client.datasets.tasks(), _TASKS)
                case "anchor-sets":
                    render.listing(client.anchors.list(), ANCHOR_SETS)
                case "jobs":
                    self._jobs(client)

    def _checkpoints(self, client: AcpcClient) -> None:
        found = client.checkpoints.list(show_all=self.show_all)
        good = found if self.json else [one for one in found if not one.problem]
        render.listing(good, _CHECKPOINTS)
        for one in found:
            if one.problem and not self.json:
                command = f"; next: {one.next_command}" if one.next_command else ""
                render.prose(f"{one.name}: {one.problem}{command}")

    def _jobs(self, client: AcpcClient) -> None:
        listed = client.operations.list(filter=self.filter)
        if not self.json:
            judged = [at for at, one in enumerate(listed) if one.request and one.error is None]
            for at in judged[:_VERDICTS]:
                with contextlib.suppress(NotFound):  # deleted since
                    listed[at] = client.operations.get(listed[at].name)
        render.listing(listed, _OPERATIONS, lambda item: status_of(item).to_dict())


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
        render.fields(client.checkpoints.get(checkpoint_of(self.name)), (*_CHECKPOINTS, *_MODEL))

    def _anchor_set(self, client: AcpcClient) -> None:
        found = client.anchors.get(self.name)
        if not self.contents:
            render.fields(found, ANCHOR_SET)
            return
        inside = client.anchors.contents(self.name)
        plain = {**found.to_dict(), "contents": inside.to_dict()}
        render.fields(found, (*ANCHOR_SET, *contents_of(inside)), lambda _: plain)

    def _job(self, client: AcpcClient) -> None:
        name = job_name(self.name)
        if self.wait:
            finish([follow(client, name, self.timeout, self.out)], self)
        operation = client.operations.get(name)
        if self.out is not None:
            if operation.study is None:
                operation.result()  # raises why there is none
            save_result(operation, self.out)
            render.line(f"{operation.name}: {self.out}")
        elif self.json:
            render.result(status_of(operation))
        elif operation.score is not None and self.form is Format.CSV:
            render.score(operation.score)
        else:
            if operation.score is not None:
                render.score(operation.score, render.asked(operation))
            render.fields(operation, (*_OPERATIONS, *_PHASES))


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
            raise ArgumentError("--pin", "and --unload exclude each other")
        named = checkpoint_of(self.checkpoint)
        with self.connect() as client:
            if self.unload:
                now = client.checkpoints.unload(named)
            else:
                now = client.checkpoints.load(named, pin=self.pin).checkpoint
        render.fields(now, (*_CHECKPOINTS, *_MODEL))


class Cancel(Server):
    """Asks for a job, or for every job of a sweep, to be cancelled; each ends as soon as it can.

    `acpc sweep run` takes the sweep up again.

    **Examples**

        acpc cancel latest
        acpc cancel sweep.yaml
    """

    name: Annotated[str, typer.Argument(metavar="JOB|SWEEP.YAML", help=f"{_NAME}. Or a sweep.")]

    def __call__(self) -> None:
        with self.connect() as client:
            if self.name.endswith((".yaml", ".yml")) or Path(self.name).is_file():
                from acpc_lab.sweeps import Sweep  # noqa: PLC0415  slow to import

                asked = Sweep.load(Path(self.name)).cancel(client)
                render.line(f"{asked} cancellations requested")
                return
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
