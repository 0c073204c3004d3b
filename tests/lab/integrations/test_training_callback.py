"""Real Lightning trains a tiny module while a real server scores its epochs."""

import copy
import csv
import importlib
import pickle
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from acpc.contract import DatasetAnchors, GaussianBlur, GaussianNoise, ScoreProtocol
from acpc_client import EvidenceOptions
from acpc_client.errors import (
    ArgumentError,
    FailedPrecondition,
    NotFound,
)
from acpc_client.sync.client import AcpcClient
from acpc_lab.evidence import at_epoch
from acpc_lab.integrations import (
    EpochScore,
    EpochScorer,
    ScoreCheckpointCallback,
    ScreenFailed,
    epochs,
)
from job_world import JobWorld, write_job_world
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS

pytestmark = pytest.mark.process

ANCHORS = DatasetAnchors("rooms.h5", "tworoom", count=10)
PROTOCOL = ScoreProtocol(draws=2)
NOISE = GaussianNoise(0.08)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> JobWorld:
    return write_job_world(tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="module")
def server(world: JobWorld) -> Iterator[ServerProcess]:
    with world.server("state") as process:
        yield process
        assert process.bugs() == []


@pytest.fixture
def lightning(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(getattr(request, "param", "lightning.pytorch"))


def module_of(library: Any) -> Any:
    class Tiny(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

        def train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(torch.ones(6, 2), batch_size=2)

    return Tiny()


def fit(library: Any, root: Path, callback: Any, epochs: int = 3) -> Any:
    logger = importlib.import_module(f"{library.__name__}.loggers").CSVLogger(root, "log", "0")
    trainer = library.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=logger, callbacks=callback,
        default_root_dir=root, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False, log_every_n_steps=1,
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(module_of(library))
    trainer.told = [str(item.message) for item in caught if "acpc: " in str(item.message)]
    return trainer


def logged(root: Path) -> list[dict[str, str]]:
    with (root / "log" / "0" / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def exporter(world: JobWorld, run: str) -> Callable[[Any, Any, int], str]:
    """Each epoch a checkpoint of its own; epoch 0 is the reference."""

    def export(trainer: Any, module: Any, epoch: int) -> str:
        assert trainer.current_epoch == epoch
        assert module.layer.weight.shape == (1, 2)
        world.write_weights(f"{run}/epoch-{epoch}", seed=epoch)
        return f"{run}/epoch-{epoch}"

    return export


@pytest.mark.parametrize("lightning", ["lightning.pytorch", "pytorch_lightning"], indirect=True)
def test_every_epoch_is_scored_and_logged_with_its_own_step(
    lightning: Any, world: JobWorld, server: ServerProcess, tmp_path: Path
) -> None:
    """In the trainer's loggers, and to whoever listens."""
    run = lightning.__name__.replace(".", "-")
    world.write_weights(f"{run}/epoch-0", seed=0)
    heard: list[EpochScore] = []
    callback = ScoreCheckpointCallback(
        server.address, ANCHORS, [GaussianNoise(0.2), NOISE, GaussianBlur(5)],
        export=exporter(world, run),
        reference=f"{run}/epoch-0", protocol=PROTOCOL, drain=60, listeners=[heard.append],
    )  # fmt: skip
    trainer = fit(lightning, tmp_path, [callback])
    assert trainer.told == [] and heard == callback.scores
    assert [(item.epoch, item.step) for item in callback.scores] == [
        (epoch, 3 * (epoch + 1)) for epoch in range(3) for _ in range(3)
    ]
    by_hand = {}
    with AcpcClient(server.address) as client:
        for epoch in range(3):
            by_hand[epoch] = client.score_checkpoint(
                f"{run}/epoch-{epoch}", ANCHORS, NOISE, reference=f"{run}/epoch-0",
                protocol=PROTOCOL,
            ).result(GENEROUS_SECONDS)  # fmt: skip
    limit = "acpc/gaussian_noise/limit"  # of several severities, none of the blur's one
    found = [(row["step"], row[limit]) for row in logged(tmp_path) if row[limit]]
    assert found == [("3", "0.0"), ("6", "0.0"), ("9", "0.0")]
    assert "acpc/gaussian_blur/limit" not in logged(tmp_path)[0]
    rows = {int(r["step"]): r for r in logged(tmp_path) if r["acpc/gaussian_noise_0.08/sr"]}
    assert sorted(rows) == [3, 6, 9]
    assert sum(bool(row["acpc/gaussian_blur_5/ir"]) for row in logged(tmp_path)) == 3
    for epoch, wanted in by_hand.items():
        side, verdict = wanted.checkpoint, wanted.verdict
        numbers = {"ir": side.ir_raw, "sr": side.sr, "ir_relative": verdict.ir_relative,
                   "score": verdict.score, "passed": 0.0, "epoch": epoch}  # fmt: skip
        row = {k.removeprefix("acpc/gaussian_noise_0.08/"): v
               for k, v in rows[3 * (epoch + 1)].items()}  # fmt: skip
        assert {name: float(row[name]) for name in numbers} == numbers
        assert float(row["sr_lower"]) <= side.sr <= float(row["sr_upper"])


def test_training_does_not_wait_for_a_server_that_does_not_answer(
    lightning: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "AcpcClient", partial(AcpcClient, timeout=600))
    with socket.socket() as silent:  # accepts, and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        callback = ScoreCheckpointCallback(
            f"127.0.0.1:{silent.getsockname()[1]}", ANCHORS, NOISE, export=lambda *_: "model",
            backlog=2, drain=0.1,
        )  # fmt: skip
        ends: list[float] = []

        class Timed(lightning.Callback):
            def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                ends.append(time.monotonic())

        begun = time.monotonic()
        trainer = fit(lightning, tmp_path, [callback, Timed()], epochs=5)
    assert len(ends) == 5
    assert max(ends) - begun < GENEROUS_SECONDS, "a first call alone has 600 seconds"
    assert len(callback.scores) == 5
    assert all(item.error is not None for item in callback.scores)
    assert any("2 epochs are waiting" in told for told in trainer.told)
    assert len(trainer.told) == 5, "each epoch that was not scored is told once"


def test_what_the_server_refuses_is_a_warning_or_an_error_as_asked(
    lightning: Any, server: ServerProcess, tmp_path: Path
) -> None:
    def broken(trainer: Any, module: Any, epoch: int) -> str | None:
        if epoch == 1:
            raise OSError("the disk is full")
        return None if epoch == 2 else "nowhere"

    def made(**options: Any) -> ScoreCheckpointCallback:
        return ScoreCheckpointCallback(server.address, ANCHORS, NOISE, export=broken, **options)

    callback = made()
    trainer = fit(lightning, tmp_path / "warn", callback)
    assert [item.epoch for item in callback.scores] == [0]
    assert any("export of epoch 1: OSError: the disk is full" in told for told in trainer.told)
    assert any("epoch 0 under gaussian_noise:0.08: NOT_FOUND" in told for told in trainer.told)
    with pytest.raises((NotFound, OSError)):
        fit(lightning, tmp_path / "raise", made(raise_errors=True))


def test_training_can_stop_and_gate_on_scores(
    lightning: Any, world: JobWorld, server: ServerProcess, tmp_path: Path
) -> None:
    seen: list[EpochScore] = []
    heard: list[EpochScore] = []

    def bad(item: EpochScore) -> bool:
        seen.append(item)
        return not item.passed

    def slowly(trainer: Any, module: Any, epoch: int) -> str | None:
        while epoch == 1 and not seen:  # gives the first score time to arrive
            time.sleep(0.05)
            callback.on_train_batch_end(trainer)
        return "model" if epoch == 0 else None

    callback = ScoreCheckpointCallback(
        server.address, ANCHORS, NOISE, export=slowly, reference="base", protocol=PROTOCOL,
        listeners=[heard.append], stop_when=bad, gate=True,
    )  # fmt: skip
    words = "epoch 0 does not pass under gaussian_noise:0.08: relative IR .*, wanted at most 0.3"
    with pytest.raises(ScreenFailed, match=words):
        fit(lightning, tmp_path / "bad", callback, epochs=50)
    assert [item.epoch for item in seen] == [0]
    assert heard == seen
    nothing = ScoreCheckpointCallback(
        server.address, ANCHORS, NOISE, export=lambda *_: None, gate=True
    )
    with pytest.raises(ScreenFailed, match="no epoch was scored"):
        fit(lightning, tmp_path / "none", nothing, epochs=1)


def test_only_every_nth_epoch_is_exported(lightning: Any, tmp_path: Path) -> None:
    epochs: list[int] = []
    callback = ScoreCheckpointCallback(
        "localhost:1", ANCHORS, NOISE, export=lambda _, __, epoch: epochs.append(epoch), every=2
    )
    fit(lightning, tmp_path, callback, epochs=5)
    assert epochs == [1, 3]
    with pytest.raises(ArgumentError, match="every: found 0"):
        ScoreCheckpointCallback("a", ANCHORS, NOISE, export=lambda *_: None, every=0)


def test_the_callback_travels_to_other_processes() -> None:
    callback = ScoreCheckpointCallback("gpu:50051", ANCHORS, NOISE, export=exporter, prefix="x")
    travelled = pickle.loads(pickle.dumps(callback))  # noqa: S301  our own bytes
    for twin in (travelled, copy.deepcopy(callback)):
        assert isinstance(twin, ScoreCheckpointCallback)
        assert twin.prefix == "x"
        assert (twin.server, twin.anchors, twin.shifts) == ("gpu:50051", ANCHORS, NOISE)


def test_a_scorer_serves_any_loop(server: ServerProcess) -> None:
    before = threading.active_count()
    with EpochScorer(server.address, ANCHORS, NOISE, protocol=PROTOCOL) as scorer:
        assert scorer.submit(0, "model")
        assert scorer.submit(1, "nowhere", step=7)
        assert scorer.drain(60)
        first, second = scorer.arrived()
        assert scorer.arrived() == []
        assert first.score is not None
        assert not first.passed, "nothing passes without a reference"
        told = {**first.score.metrics(), "epoch": 0.0}
        assert first.metrics("x") == {f"x/gaussian_noise_0.08/{x}": told[x] for x in told}
        assert "ir_lower" in told and "ir_upper" not in told, "ten anchors give it no upper end"
        assert isinstance(second.error, NotFound)
        assert (second.epoch, second.step, second.metrics()) == (1, 7, {})
    assert not scorer.submit(2, "model")
    (late,) = scorer.arrived()
    assert isinstance(late.error, FailedPrecondition)
    assert threading.active_count() <= before + 2, "its thread is gone; gRPC keeps its own"


def test_epochs_spend_the_error_of_a_verdict_by_their_number(server: ServerProcess) -> None:
    """A run that is resumed goes on with the epoch's own share, whatever was scored before."""

    def confidences(*epochs: int, **options: Any) -> list[float]:
        with EpochScorer(server.address, ANCHORS, NOISE, protocol=PROTOCOL, **options) as scorer:
            assert all(scorer.submit(epoch, "model") for epoch in epochs)
            assert scorer.drain(GENEROUS_SECONDS)
            return [item.score.evidence.confidence for item in scorer.arrived()]

    wanted = [at_epoch(EvidenceOptions(), epoch, 100).confidence for epoch in (0, 7)]
    assert confidences(0, 7) == wanted
    assert confidences(7) == wanted[1:]
    assert confidences(7, error_halflife=None, evidence=EvidenceOptions(0.9)) == [0.9]
    with pytest.raises(ArgumentError, match="error_halflife"):
        confidences(error_halflife=0)
