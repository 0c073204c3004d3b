"""Scores at MLflow, Weights & Biases and TensorBoard, read back by the trackers' own readers."""

import json
import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from acpc_client import CheckpointRef, GaussianNoise, Score
from acpc_client.errors import ArgumentError
from acpc_lab import exporters
from acpc_lab.exporters import ScoreRecord, Tracker, record_of
from acpc_lab.integrations import EpochScore
from report_samples import sweep
from waiting import GENEROUS_SECONDS

NAME = "acpc/gaussian_noise_0.08"
Write = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def score() -> Score:
    """A score with values per anchor."""
    found = next(c.score for c in sweep().cells if c.score and c.score.checkpoint.anchor_values)
    assert found is not None
    return found


@pytest.fixture
def items(score: Score) -> list[EpochScore]:
    """Epochs 1 and 2 of one run."""
    return [
        EpochScore.numbered(
            CheckpointRef("runs/7", f"weights_epoch_{epoch}.pt"), GaussianNoise(0.08), "op", score
        )
        for epoch in (1, 2)
    ]


@pytest.fixture
def told() -> list[str]:
    """What went wrong."""
    return []


@pytest.fixture
def write(items: list[EpochScore], told: list[str]) -> Write:
    """Writes both epochs to a tracker; what went wrong."""

    def write(address: str) -> list[str]:
        with Tracker(address, "gate", told.append) as tracker:
            for item in items:
                tracker(item)
            tracker.close(GENEROUS_SECONDS)
        return told

    return write


def test_tensorboard_reads_scores_verdicts_and_figures_by_epoch(
    write: Write, tmp_path: Path, score: Score
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert write(f"tensorboard:{tmp_path}") == []
    events = accumulator.EventAccumulator(str(tmp_path / "gate/runs/7"))
    events.Reload()
    found = events.Scalars(f"{NAME}/sr")
    assert [item.step for item in found] == [1, 2]
    assert found[0].value == pytest.approx(score.checkpoint.sr)
    assert events.Images(f"{NAME}/figure")[0].width > 100
    (text,) = events.Tensors(f"{NAME}/verdict")[0].tensor_proto.string_val
    assert text.decode() == score.verdict.outcome.name.lower()
    (receipt,) = events.Tensors(f"{NAME}/receipt")[1].tensor_proto.string_val
    assert json.loads(receipt)["anchors_digest"] == score.receipt.anchors_digest


@pytest.mark.process  # loading MLflow takes seconds
def test_mlflow_keeps_one_run_over_several_processes(
    write: Write, tmp_path: Path, score: Score, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "mlruns").as_uri()
    assert write(f"mlflow:{uri}") == write(f"mlflow:{uri}") == []
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("acpc").experiment_id
    (run,) = client.search_runs([experiment])
    assert run.info.run_name == "runs/7"
    assert run.info.status == "FINISHED"
    assert run.data.tags[f"{NAME}/verdict"] == score.verdict.outcome.name.lower()
    history = client.get_metric_history(run.info.run_id, f"{NAME}/sr")
    assert {item.step: item.value for item in history} == dict.fromkeys((1, 2), score.checkpoint.sr)
    kept = {item.path for item in client.list_artifacts(run.info.run_id, f"{NAME}/2")}
    assert kept == {f"{NAME}/2/figure.png", f"{NAME}/2/receipt.json"}


@pytest.mark.process
def test_wandb_offline_holds_the_history_and_the_receipts(
    write: Write, tmp_path: Path, score: Score, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("DIR", "DATA_DIR", "CACHE_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path))
    try:
        assert write("wandb:rooms") == []
    finally:
        wandb.teardown()  # ends its service, a process of its own
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    kept = path.read_bytes()
    values = (f"{score.checkpoint.sr}", score.verdict.outcome.name.lower(), "image-file", "rooms")
    names = [f"{NAME}/{name}" for name in ("sr", "verdict", "figure")]
    for wanted in (*names, *values, "acpc/step", "-gaussian_noise_0.08-2"):
        assert wanted.encode() in kept, wanted


@pytest.mark.process  # loading it takes seconds
def test_wandb_without_a_key_says_what_to_do_and_asks_nobody(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    monkeypatch.setattr(wandb, "init", lambda **_: pytest.fail("a run was begun"))
    wandb.teardown()  # forgets what an earlier test has set
    try:
        (words,) = write("wandb:rooms")
    finally:
        wandb.teardown()
    assert "`wandb login`" in words and "WANDB_MODE=offline" in words


@pytest.mark.parametrize(
    ("name", "weights", "epoch", "run"),
    [
        ("runs/7", "weights_epoch_3.pt", 3, "runs/7"),
        ("runs/7/epoch-3", "weights.pt", 3, "runs/7"),
        ("runs/noise-0.08", "weights.pt", 0, "runs/noise-0.08"),
        ("epoch-3", "", 3, "epoch-3"),
    ],
)
def test_checkpoints_of_one_training_run_share_a_run(
    score: Score, name: str, weights: str, epoch: int, run: str
) -> None:
    ref = CheckpointRef(name, weights)
    found = record_of(EpochScore(epoch, 0, ref, GaussianNoise(0.08), "", score, None))
    assert (found.run, found.step) == (run, epoch)


def test_a_score_that_has_nothing_to_draw_has_no_figure(
    items: list[EpochScore], score: Score
) -> None:
    bare = replace(
        score,
        checkpoint=replace(score.checkpoint, anchor_values=None),
        verdict=replace(score.verdict, ir_relative=None),
    )
    assert set(record_of(replace(items[0], score=bare)).files) == {"receipt.json"}


@pytest.mark.parametrize("address", ["", "mlflow", "wandb:", "tensorboard:", "comet:mine"])
def test_an_address_names_a_tracker(address: str) -> None:
    with pytest.raises(ArgumentError, match="wanted mlflow:URI, wandb:PROJECT or tensorboard:DIR"):
        Tracker(address)


def test_a_tracker_that_cannot_be_used_is_told_once_and_raises_nothing(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A library that is missing, with what to install, and one that fails at each score."""
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    write(f"mlflow:{tmp_path}")
    (tmp_path / "taken").write_text("a file")
    missing, failing = write(f"tensorboard:{tmp_path / 'taken'}")
    assert "pip install mlflow-skinny" in missing
    assert "a score is not written there" in failing


def test_a_tracker_that_hangs_is_left_behind(
    items: list[EpochScore], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    hanging = SimpleNamespace(write=lambda _: ended.wait(GENEROUS_SECONDS), close=lambda: None)
    monkeypatch.setitem(exporters.tracker.WRITERS, "mlflow", lambda *_: hanging)
    tracker = Tracker("mlflow:", on_trouble=told.append)
    for item in items:
        tracker(item)
    tracker.close(timeout=0.05)
    ended.set()
    assert told == ["mlflow:: does not answer; 2 scores are not written there"]


def test_runs_that_cannot_be_closed_are_told_as_such(
    items: list[EpochScore], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, written = threading.Event(), list[ScoreRecord]()

    def fail() -> None:
        raise TimeoutError

    for close, timeout, scores in (
        (fail, GENEROUS_SECONDS, items[:1]),
        (lambda: ended.wait(GENEROUS_SECONDS), 0.05, []),
    ):
        writer = SimpleNamespace(write=written.append, close=close)
        monkeypatch.setitem(exporters.tracker.WRITERS, "mlflow", lambda *_, made=writer: made)
        tracker = Tracker("mlflow:", on_trouble=told.append)
        tracker.open()
        for item in scores:
            tracker(item)
        tracker.close(timeout)
    ended.set()
    words = "its runs are not closed: TimeoutError", "does not answer; its runs are not closed"
    assert (len(written), told) == (1, [f"mlflow:: {text}" for text in words])


def test_a_slow_tracker_is_waited_for_while_it_writes(
    items: list[EpochScore], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty scores that take longer together than one may take."""
    written: list[int] = []
    pause = threading.Event()

    def write(record: ScoreRecord) -> None:
        pause.wait(0.1)
        written.append(record.step)

    slow = SimpleNamespace(write=write, close=lambda: None)
    monkeypatch.setitem(exporters.tracker.WRITERS, "mlflow", lambda *_: slow)
    monkeypatch.setattr("acpc_lab.exporters.tracker.record_of", lambda item, _: item)
    tracker = Tracker("mlflow:", on_trouble=told.append)
    for item in items * 15:
        tracker(item)
    tracker.close(timeout=2.0)
    assert (len(written), told) == (30, [])


@pytest.mark.parametrize(("again", "wanted"), [(0.0, [1, 2, -1]), (3600.0, [])])
def test_a_tracker_that_comes_back_is_written_to_again_after_a_while(
    again: float, wanted: list[int], items: list[EpochScore], told: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    written: list[int] = []
    begun = threading.Event()

    def begin(*_: object) -> SimpleNamespace:
        if not begun.is_set():
            begun.set()
            raise ConnectionError("nobody listens")
        return SimpleNamespace(
            write=lambda record: written.append(record.step), close=lambda: written.append(-1)
        )

    monkeypatch.setitem(exporters.tracker.WRITERS, "mlflow", begin)
    monkeypatch.setattr("acpc_lab.exporters.tracker._AGAIN_S", again)
    with Tracker("mlflow:", on_trouble=told.append) as tracker:
        assert begun.wait(GENEROUS_SECONDS)
        for item in items:
            tracker(item)
    assert written == wanted
    assert told == ["mlflow:: nothing is written there: nobody listens"]


def test_tensorboards_files_stay_below_the_folder_and_a_tracker_travels(
    items: list[EpochScore], tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    with Tracker(f"tensorboard:{tmp_path / 'logs'}", "../../gate") as tracker:
        tracker(items[0])
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert list((tmp_path / "logs/gate/runs/7").iterdir())
    assert pickle.loads(pickle.dumps(tracker)).address == tracker.address  # noqa: S301 - spawned
