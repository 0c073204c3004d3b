"""Says what a score is to a tracker, and writes it to three of them, behind two calls each."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import re
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acpc.contract import changed, load_optional, to_plain
from acpc_client import Score
from acpc_client.errors import ArgumentError, FailedPrecondition

from acpc_lab.integrations import EpochScore
from acpc_lab.sweeps import CellResult
from acpc_lab.watching import ScoredCheckpoint, run_of

_PNG_SIZE = slice(16, 24)  # of the header: width and height
_COLOURS = 4  # red, green, blue, opacity
_NO_KEY = (
    "there is no key: run `wandb login` or set WANDB_API_KEY; "
    "WANDB_MODE=offline keeps everything here, for `wandb sync`"
)
Scored = EpochScore | CellResult | ScoredCheckpoint


@dataclass(frozen=True)
class ScoreRecord:
    """One checkpoint under one shift, for any tracker.

    Attributes:
        run: Training run that the checkpoint is of: its name at the server, without the epoch.
        step: Epoch of the checkpoint in that run.
        name: What is measured, for example ``acpc/gaussian_noise_0.08``; every metric and tag is
            named below it.
        metrics: Finite numbers: IR, SR, relative IR, S, the ends of their intervals, ``passed``.
        tags: Verdicts, digests and the job, as text.
        files: Content by name: ``receipt.json``, and ``figure.png`` where there is one.
    """

    run: str
    step: int
    name: str
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    files: Mapping[str, bytes]


def record_of(item: EpochScore, prefix: str = "acpc") -> ScoreRecord:
    """Turns an epoch's score into a record. Raises ArgumentError: It has no score."""
    score = item.score
    if score is None:
        raise ArgumentError("item", "has no score")
    metrics = {name: x for name, x in item.metrics(prefix).items() if math.isfinite(x)}
    name = next(iter(metrics)).rpartition("/")[0]
    sure = score.evidence
    tags = {
        "shift": str(item.shift),
        "verdict": score.verdict.outcome.name.lower(),
        "confident_verdict": sure.confident_outcome.name.lower() if sure else "",
        "checkpoint": f"{item.checkpoint.name} {item.checkpoint.weights}".strip(),
        "checkpoint_digest": score.receipt.checkpoint_digest,
        "operation": item.operation,
    }
    files = {"receipt.json": json.dumps(to_plain(score.receipt), indent=1).encode()}
    return ScoreRecord(
        run_of(item.checkpoint, item.epoch),
        item.epoch,
        name,
        metrics,
        {f"{name}/{key}": value for key, value in tags.items() if value},
        files | _figure(score),
    )


def epochs_of(scored: Scored) -> Iterator[tuple[EpochScore, str]]:
    """Yields each score as an epoch's, with the prefix of its names."""
    if isinstance(scored, ScoredCheckpoint):
        epoch = scored.arrival.epoch or 0
        for item in scored.results:
            for found, prefix in epochs_of(item):
                yield dataclasses.replace(found, epoch=epoch, step=epoch), prefix
    elif scored.score is None:
        return
    elif isinstance(scored, EpochScore):
        yield scored, "acpc"
    else:
        cell, near = scored.cell, changed(scored.cell.protocol).get("neighbourhood")
        prefix = "acpc" if cell.seed == 0 else f"acpc/seed{cell.seed}"
        prefix += "" if near is None else f"/neighbourhood{near:g}"
        of = cell.checkpoint, cell.shift, scored.operation, scored.score
        yield EpochScore.numbered(*of), prefix


def _figure(score: Score) -> dict[str, bytes]:
    """Draws its picture; none without values per anchor, or without matplotlib."""
    from acpc_lab import report  # noqa: PLC0415  slow to import

    with contextlib.suppress(ArgumentError, FailedPrecondition):
        return {"figure.png": report.picture(score).png()}
    return {}


class MlflowWriter:
    """Writes into an MLflow server, database or folder; one run for each training run."""

    def __init__(self, uri: str, group: str) -> None:
        mlflow = load_optional("mlflow", "pip install mlflow-skinny")
        self._client = mlflow.MlflowClient(tracking_uri=uri or None)
        self._group = group
        self._runs: dict[str, str] = {}
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "acpc")
        found = self._client.get_experiment_by_name(name)
        self._experiment = found.experiment_id if found else self._client.create_experiment(name)

    def write(self, record: ScoreRecord) -> None:
        """Logs metrics by epoch, sets tags, and keeps the files as artifacts."""
        run = self._runs.get(record.run) or self._run(record.run)
        for name, value in record.metrics.items():
            self._client.log_metric(run, name, value, step=record.step)
        for name, text in record.tags.items():
            self._client.set_tag(run, name, text)
        with _written(record) as folder:
            # One by one: what uploads several waits for all of them when the process ends.
            for path in sorted(Path(folder).iterdir()):
                self._client.log_artifact(run, str(path), f"{record.name}/{record.step}")

    def _run(self, name: str) -> str:
        """The run of an earlier process, or a new one."""
        key = _key(self._group, name)
        found = self._client.search_runs([self._experiment], f"tags.`acpc.key` = '{key}'")
        if not found:
            tags = {"acpc.key": key, "acpc.group": self._group}
            found = [self._client.create_run(self._experiment, tags=tags, run_name=name)]
        self._runs[name] = str(found[0].info.run_id)
        return self._runs[name]

    def close(self) -> None:
        """Ends the runs."""
        for run in self._runs.values():
            self._client.set_terminated(run)


class WandbWriter:
    """Writes into a project of Weights & Biases; ``WANDB_MODE=offline`` keeps it here."""

    def __init__(self, project: str, group: str) -> None:
        self._wandb = load_optional("wandb", "pip install wandb")
        online = self._wandb.setup().settings.mode in ("online", "shared")
        # Without a key, a run would ask the terminal for one.
        if online and not self._wandb.login(prompt=False):
            raise FailedPrecondition(_NO_KEY)
        self._entity, _, self._project = project.rpartition("/")
        self._group = group
        self._runs: dict[str, Any] = {}

    def write(self, record: ScoreRecord) -> None:
        """Logs metrics, verdicts and figure by epoch; keeps the receipt as an artifact."""
        run = self._runs.get(record.run) or self._run(record.run)
        values = {"acpc/step": record.step, **record.metrics, **record.tags}
        with _written(record) as folder:
            figure = Path(folder, "figure.png")
            if figure.exists():
                values[f"{record.name}/figure"] = self._wandb.Image(str(figure))
            run.log(values)
            name = re.sub(r"[^\w.-]+", "-", f"{run.id}-{record.name}-{record.step}")
            artifact = self._wandb.Artifact(name, "acpc-receipt")
            artifact.add_file(str(Path(folder, "receipt.json")))
            run.log_artifact(artifact)

    def _run(self, name: str) -> Any:  # noqa: ANN401 - wandb's
        run = self._runs[name] = self._wandb.init(
            project=self._project,
            entity=self._entity or None,
            group=self._group or None,
            id=_key(self._group, name),
            name=name,
            resume="allow",
            reinit="create_new",
            settings=self._wandb.Settings(console="off", silent=True),
        )
        run.define_metric("acpc/step")
        run.define_metric("acpc/*", step_metric="acpc/step")
        return run

    def close(self) -> None:
        """Ends the runs."""
        for run in self._runs.values():
            run.finish()


class TensorboardWriter:
    """Writes event files for TensorBoard, in a folder for each training run."""

    def __init__(self, folder: str, group: str) -> None:
        def load(module: str) -> Any:  # noqa: ANN401 - a module
            return load_optional(f"tensorboard.{module}", "pip install tensorboard")

        self._open = load("summary.writer.event_file_writer").EventFileWriter
        self._event = load("compat.proto.event_pb2").Event
        self._summary = load("compat.proto.summary_pb2").Summary
        self._tensor = load("compat.proto.tensor_pb2").TensorProto
        self._string = load("compat.proto.types_pb2").DT_STRING
        self._text = load("plugins.text.metadata").create_summary_metadata("", "")
        self._folder = Path(folder, *_parts(group))
        self._runs: dict[str, Any] = {}

    def write(self, record: ScoreRecord) -> None:
        """Adds scalars, texts and an image by epoch; the receipt is a text."""
        value = self._summary.Value
        values = [value(tag=name, simple_value=x) for name, x in record.metrics.items()]
        texts = {**record.tags, f"{record.name}/receipt": _code(record.files["receipt.json"])}
        values += [
            value(
                tag=name,
                metadata=self._text,
                tensor=self._tensor(dtype=self._string, string_val=[text.encode()]),
            )
            for name, text in texts.items()
        ]
        if "figure.png" in record.files:
            content = record.files["figure.png"]
            width, height = struct.unpack(">II", content[_PNG_SIZE])
            image = self._summary.Image(
                height=height, width=width, colorspace=_COLOURS, encoded_image_string=content
            )
            values.append(value(tag=f"{record.name}/figure", image=image))
        if record.run not in self._runs:
            folder = self._folder.joinpath(*_parts(record.run))
            self._runs[record.run] = self._open(str(folder))
        summary = self._summary(value=values)
        now = time.time()
        run = self._runs[record.run]
        run.add_event(self._event(wall_time=now, step=record.step, summary=summary))
        run.flush()

    def close(self) -> None:
        """Ends the runs."""
        for run in self._runs.values():
            run.close()


Writer = MlflowWriter | WandbWriter | TensorboardWriter
WRITERS: dict[str, type[Writer]] = {
    "mlflow": MlflowWriter,
    "wandb": WandbWriter,
    "tensorboard": TensorboardWriter,
}


def _key(group: str, run: str) -> str:
    """The same for the same run in every process."""
    return hashlib.sha256(f"{group}\0{run}".encode()).hexdigest()[:16]


def _parts(name: str) -> list[str]:
    """The parts of a folder's name that stays below another."""
    return [part for part in re.split(r"[/\\]+", name) if part.strip(".")]


def _code(content: bytes) -> str:
    """JSON as text that TensorBoard shows as it is."""
    return "".join(f"    {line}\n" for line in content.decode().splitlines())


def _written(record: ScoreRecord) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="acpc-")
    for name, content in record.files.items():
        Path(folder.name, name).write_bytes(content)
    return folder
