"""A watch: every checkpoint once, by name and content, through whatever happens."""

import errno
import hashlib
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import processes
import pytest
import yaml
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import CheckpointRef, EvidenceOptions, Outcome
from acpc_client.errors import ArgumentError, FailedPrecondition, RunEnded
from acpc_client.sync.client import AcpcClient
from acpc_lab.cli.cells import results_table
from acpc_lab.cli.render import FORM, Format
from acpc_lab.evidence import at_epoch
from acpc_lab.report import from_sweep
from acpc_lab.sweeps import SweepProgress, SweepResults, load_spec
from acpc_lab.watching import Arrival, Listener, ScoredCheckpoint, Watch
from client_messages import score_response, status, sure
from grpc import StatusCode
from job_counterparty import DOCUMENT, FAILED, JobParty
from waiting import wait_until


@dataclass
class Scene:
    """A watch of a counterparty, and what listeners and the log were given."""

    file: Path
    client: AcpcClient
    party: JobParty
    told: list[ScoredCheckpoint] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.write = self.party.write
        self.listeners: list[Listener] = [self.told.append]

    def make(self, prefix: str = "", **changes: Any) -> Watch:
        """A watch, as a program that was started again has one; keys change the sweep file."""
        document = yaml.safe_load(self.file.read_text())
        self.file.write_text(yaml.safe_dump({**document, **changes}))
        return Watch(
            load_spec(self.file), self.file.with_name("gate.watch"), prefix,
            listeners=self.listeners, on_trouble=self.trouble.append,
        )  # fmt: skip

    def run(self, prefix: str = "", **changes: Any) -> None:
        """Watches once."""
        self.make(prefix, **changes).run(self.client, once=True, interval=0.01)

    @contextmanager
    def going_on(self, watch: Watch) -> Iterator[None]:
        """Runs a watch in a thread until the block ends."""
        stop = threading.Event()

        def run() -> None:
            with pytest.raises(RunEnded):
                watch.run(self.client, interval=0.01, stop=stop)

        runner = threading.Thread(target=run)
        runner.start()
        try:
            yield
        finally:
            stop.set()
            runner.join()

    @property
    def seen(self) -> list[tuple[str, str, Outcome]]:
        """Each checkpoint that a listener was told of, with its outcome."""
        return [(x.arrival.ref.name, x.arrival.ref.weights, x.outcome) for x in self.told]


@pytest.fixture
def at(file: Path, client: AcpcClient, party: JobParty) -> Scene:
    return Scene(file, client, party)


def test_each_is_scored_once_in_the_order_of_epochs(at: Scene) -> None:
    """And the jobs of a folder that was lost are found again."""
    for epoch in (10, 2, 1):
        at.write("run", f"weights_epoch_{epoch}.pt")
    for _ in range(3):
        at.run(concurrency=1)
    submitted = [job.request.checkpoint.weights for job in at.party.jobs.values()]
    assert submitted == [f"weights_epoch_{epoch}.pt" for epoch in (1, 2, 10)]
    assert at.seen == [("run", name, Outcome.PASSED) for name in submitted]
    at.file.with_name("gate.watch").rename(at.file.with_name("lost"))
    at.run()
    assert len(at.party.jobs) == 3


def test_other_content_under_a_name_is_scored_again_and_a_touch_is_not(
    at: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at.write("a")
    at.run()
    at.write("a")
    at.run()
    assert len(at.party.jobs) == 1
    at.write("a", content="b")
    at.run()
    assert len(at.party.jobs) == 2
    at.write("a", content="a")  # this content is known under this name
    at.run()
    assert len(at.party.jobs) == len(at.told) == 2
    results = SweepResults.open(at.make().folder)
    contents = [row["content"] for row in results.rows()]
    assert len(set(contents)) == 2
    monkeypatch.setenv("COLUMNS", "300")
    FORM.set(Format.TABLE)  # whatever a command before asked for
    results_table(results)
    shown = capsys.readouterr().out
    assert all(f"a ({content[:8]})" in shown for content in contents)


def test_reports_and_tables_read_its_folder(at: Scene) -> None:
    """A report is by training run and epoch, where the file gives no such labels."""
    at.write("a")
    at.write("a", "weights_epoch_2.pt", content="b")
    at.write("runs/epoch-3", content="c")
    shared = sure(pb.OUTCOME_PASSED)
    shared.confidence = 0.9995  # an epoch's, which 2,000 resamples would be too few for
    at.party.fates["a"].append(score_response(pb.OUTCOME_PASSED, evidence=shared))
    at.run()
    results = SweepResults.open(at.file.with_name("gate.watch"))
    cells = [(item.cell.checkpoint.name, item.cell.labels) for item in results]
    assert sorted(cells, key=str) == [
        ("a", {"run": "a", "epoch": 2}),
        ("a", {}),
        ("runs/epoch-3", {"run": "runs", "epoch": 3}),
    ]
    data = from_sweep(results)
    assert data.level_name == "epoch"
    assert {(cell.run, cell.level) for cell in data.cells} == {("a", 2), ("", None), ("runs", 3)}
    assert all(item.score for item in results)


def test_a_plan_follows_the_sweep_file(at: Scene) -> None:
    for number in (1, 2):
        at.write(f"run{number}")
        at.run()
    at.run(description="another")
    again = SweepResults.open(at.file.with_name("gate.watch"))
    assert (again.plan.description, len(again)) == ("another", 2)
    assert again.result().request["description"] == "another"


def test_only_what_lies_below_the_prefix_is_scored(at: Scene) -> None:
    for name in ("runs/7", "runs/7/epoch-1", "runs/70", "run", "other/runs/7"):
        at.write(name)
    for prefix in ("runs/7", "runs/7/"):
        at.run(prefix)
    assert [name for name, *_ in at.seen] == ["runs/7/epoch-1", "runs/7"]
    assert at.trouble == []
    at.run("rums/7")
    (said,) = at.trouble
    assert "the server has no checkpoint rums/7, or below it; it has runs/7, runs/70" in said
    assert len(at.party.jobs) == 2
    for path in ("/data/runs/7", "./runs", "~/runs"):
        with pytest.raises(ArgumentError, match="give what the server calls the folder"):
            at.make(path)


def test_what_is_left_out_is_named_with_the_reason_and_the_command(at: Scene) -> None:
    at.write("a")
    at.write("runs/1")
    problem = "no config.json beside last.pth: what training wrote"
    at.party.others |= {f"raw{i}": (problem, "acpc-server import") for i in range(6)}
    at.party.others["a"] = ("2 epochs; a request names one", "NAME")  # its files are listed
    at.run(checkpoints=["runs/*"])
    assert sorted(at.trouble) == [
        "a (weights.pt): left out: no item of checkpoints in gate means it",
        f"raw0, raw1, raw2, raw3 and 2 more: left out: {problem}; next: acpc-server import",
    ]


def test_they_come_by_epoch_and_a_number_of_a_metric_is_none() -> None:
    names = {
        "epoch=3-val_loss=0.12.ckpt": 3, "weights_epoch_4.pt": 4, "seed3_epoch_5.ckpt": 5,
        "weights_epoch_9.pt": 9, "epoch=0-step=10.ckpt": 10, "weights_epoch_100.pt": 100,
        "last.ckpt": None, "run-0.ckpt": None, f"weights_{'7' * 200}.pt": None,
    }  # fmt: skip
    found = [Arrival(CheckpointRef("run", name), "") for name in reversed(names)]
    found.append(Arrival(CheckpointRef("other/checkpoint-20", "weights.pt"), ""))
    epochs = [arrival.epoch for arrival in sorted(found, key=lambda x: x.order)]
    assert epochs == [3, 4, 5, 9, 10, 20, 100, None, None, None]
    assert all(names.get(x.ref.weights, 20) == x.epoch for x in found)


def test_only_what_the_file_means_is_scored(at: Scene) -> None:
    for name in ("runs/1", "other/1"):
        at.write(name, "weights_epoch_1.pt")
        at.write(name, "last.pt")
    group = {"name": "runs/{run}", "weights": "weights_epoch_{step}.pt"}
    at.run(checkpoints=[group])
    assert at.seen == [("runs/1", "weights_epoch_1.pt", Outcome.PASSED)]
    assert at.told[0].results[0].cell.labels == {"run": 1, "step": 1}
    read = {request.checkpoint.weights for request in at.party.requests["GetCheckpoint"]}
    assert read == {"weights_epoch_1.pt"}, "what is not meant is not read either"


def test_a_checkpoint_waits_for_its_reference(at: Scene) -> None:
    at.write("a")
    reference = at.make(checkpoints=["a"], reference="base")
    reference.run(at.client, once=True, interval=0.01)
    assert not at.party.jobs
    assert [item.ref.name for item in reference.unplanned] == ["a"]
    assert "its reference base is not at the server" in at.trouble[0]
    at.write("base")
    at.run()
    assert at.seen == [("a", "weights.pt", Outcome.PASSED)]


def test_what_was_replaced_or_removed_while_it_waited_is_not_scored_in_its_place(at: Scene) -> None:
    at.write("a")
    at.write("b")
    at.run(checkpoints=["a", "b"], reference="base")
    at.write("a", content="b")
    at.party.remove("b")
    at.write("base")
    watch = at.make()
    watch.run(at.client, once=True, interval=0.01)
    assert at.seen == [("a", "weights.pt", Outcome.PASSED)]
    assert len(at.party.jobs) == 1 and not watch.unplanned


def test_what_is_replaced_in_the_queue_is_not_scored_under_its_old_content(at: Scene) -> None:
    at.write("a")
    at.write("b")
    at.party.looks = 3
    moved = threading.Event()

    def replace(now: SweepProgress) -> None:
        if len(now.tasks) == 2 and not moved.is_set():  # the first is under way, the second waits
            moved.set()
            at.write("b", content="b")

    at.make(concurrency=1).run(at.client, once=True, interval=0.01, on_update=replace)
    assert sorted(at.seen) == [
        ("a", "weights.pt", Outcome.PASSED),
        ("b", "weights.pt", Outcome.UNSPECIFIED),
        ("b", "weights.pt", Outcome.PASSED),
    ]
    (refused,) = (one for one in at.told if one.outcome is Outcome.UNSPECIFIED)
    assert "its files were replaced before it was scored" in refused.results[0].message
    assert len(at.party.jobs) == 2
    assert at.trouble == []


def test_what_comes_back_is_scored(at: Scene) -> None:
    """As where a disk was not there; what has failed is tried again once it is back."""
    at.write("a")
    at.party.fates["a"] = deque([status(StatusCode.FAILED_PRECONDITION, "it does not fit")])
    at.run()
    away = at.party.remove("a")
    for _ in range(2):
        at.run()
    at.party.listing["a"] = away
    for _ in range(2):
        at.run()
    assert [outcome for *_, outcome in at.seen] == [Outcome.UNSPECIFIED, Outcome.PASSED]


def test_what_comes_back_under_a_watch_is_scored_and_a_failure_that_stays_is_not(at: Scene) -> None:
    unfit = status(StatusCode.FAILED_PRECONDITION, "it does not fit")
    for name in ("a", "b"):
        at.write(name)
        at.party.fates[name] = deque([unfit])
    with at.going_on(at.make()):
        wait_until(lambda: len(at.told) == 2)
        away = at.party.remove("a")
        looks = len(at.party.requests["ListCheckpoints"])
        wait_until(lambda: len(at.party.requests["ListCheckpoints"]) > looks + 2)
        at.party.listing["a"] = away
        wait_until(lambda: len(at.told) == 3)
    assert at.seen[2] == ("a", "weights.pt", Outcome.PASSED)
    assert len(at.party.jobs) == 3, "one of b, whose files are as they were"


class Killed(BaseException):
    """Stands for a watcher that is killed."""


def test_what_is_gone_when_a_watch_begins_neither_waits_for_ever_nor_hides_a_score(
    at: Scene,
) -> None:
    for name in ("a", "b", "c"):
        at.write(name)
    at.party.looks = 3

    def killed(now: SweepProgress) -> None:
        # The first is under way, the others wait.
        if at.file.with_name("gate.watch").joinpath("state.json").exists():
            raise Killed

    with pytest.raises(Killed):
        watch = at.make(concurrency=1)
        watch.run(at.client, once=True, interval=0.01, on_update=killed)
    at.party.remove("a")
    at.write("b", content="b")
    at.write("c")
    for _ in range(2):
        at.run()
    passed, gone = Outcome.PASSED, Outcome.UNSPECIFIED  # which is told once
    ended = [("a", passed), ("b", gone), ("b", passed), ("c", passed)]
    assert sorted(at.seen) == sorted((name, "weights.pt", outcome) for name, outcome in ended)
    assert at.trouble == []
    data = from_sweep(at.file.with_name("gate.watch"))
    assert (data.pending, data.notes) == (0, ())
    assert [cell.score is not None for cell in data.cells] == [True, False, True, True]
    assert "were replaced" in data.cells[1].problem
    assert len({cell.name for cell in data.cells}) == 4, "contents of one name are told apart"


def test_what_is_being_written_is_not_scored(at: Scene) -> None:
    """Not from one look to the next, nor while its files are not whole, which is told once."""
    contents = ["0", "1", "2", "3", "4", "done"]

    class Looks(list[Any]):
        """Each look finds other content, until it is done."""

        def append(self, request: object) -> None:
            if contents:
                at.write("b", content=contents.pop(0))
            super().append(request)

    at.write("a", problem="weights.pt: no end")
    at.party.requests["ListCheckpoints"] = Looks()
    with at.going_on(at.make()):
        wait_until(lambda: at.told)
        assert at.trouble == ["a (weights.pt) waits until it is whole: weights.pt: no end"]
        at.write("a")
        wait_until(lambda: len(at.told) > 1)
    digest = hashlib.sha256(b"done").hexdigest()
    assert at.told[0].arrival == Arrival(CheckpointRef("b", "weights.pt"), digest)
    assert len(at.party.jobs) == 2


@pytest.mark.parametrize("halflife", [None, 10, False])
def test_the_epochs_of_a_run_share_the_error(at: Scene, halflife: int | None) -> None:
    for name in ("weights_epoch_0.pt", "weights_epoch_7.pt", "last.pt"):
        at.write("run", name)
    said = {} if halflife is None else {"evidence": {"error_halflife": halflife}}
    at.run(**said)
    asked = {
        job.request.checkpoint.weights: EvidenceOptions.from_message(job.request.evidence)
        for job in at.party.jobs.values()
    }
    shared = {None: 100, False: None}.get(halflife, halflife)
    assert asked == {
        "weights_epoch_0.pt": at_epoch(EvidenceOptions(), 0, shared),
        "weights_epoch_7.pt": at_epoch(EvidenceOptions(), 7, shared),
        "last.pt": EvidenceOptions(),
    }
    assert at.told[0].results[0].cell.evidence == asked["weights_epoch_0.pt"]
    assert at.told[0].to_dict()["confidence"] is None  # this server computes no evidence


def test_a_listener_that_raises_stops_nothing(at: Scene) -> None:
    def broken(scored: ScoredCheckpoint) -> None:
        raise ValueError(f"of {scored.arrival.ref.name}")

    at.write("a")
    at.write("b")
    at.listeners.insert(0, broken)
    at.run()
    assert len(at.told) == 2
    assert at.trouble == ["a: ValueError: of a", "b: ValueError: of b"]


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """While it is set, the disk is full."""
    full, real = threading.Event(), os.fsync

    def fsync(file: int) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    return full


def test_a_full_disk_is_waited_for(at: Scene, full: threading.Event) -> None:
    """A listener is told again of what could not be written down."""
    with at.going_on(at.make()):
        at.write("a")
        wait_until(lambda: len(at.told) == 1)
        full.set()
        at.write("b")
        wait_until(lambda: at.trouble)
        assert "No space left on device; jobs go on at the server" in at.trouble[0]
        full.clear()
        wait_until(lambda: {name for name, *_ in at.seen} == {"a", "b"})
    assert len(at.party.jobs) == 2


def test_once_says_that_the_disk_is_full(at: Scene, full: threading.Event) -> None:
    at.write("a")
    full.set()
    with pytest.raises(FailedPrecondition, match="No space left on device; jobs go on"):
        at.run()


def test_one_that_the_server_cannot_read_stops_nothing(at: Scene) -> None:
    at.write("a")
    at.write("b")
    refused = status(StatusCode.PERMISSION_DENIED, "a link")
    at.party.refusals["GetCheckpoint"] = deque([refused])
    with at.going_on(at.make()):
        wait_until(lambda: len(at.told) == 2)
    (told,) = at.trouble
    assert told.endswith("waits until it is whole: a link")


def test_the_verdict_is_of_all_cells(at: Scene) -> None:
    at.write("a")
    at.party.fates["a"] = deque([FAILED])
    at.run(shifts=DOCUMENT["shifts"])
    assert at.seen == [("a", "weights.pt", Outcome.FAILED)]
    assert at.told[0].to_dict()["verdict"] == "failed"
    assert len(at.told[0].results) == 2


@pytest.mark.process
def test_the_second_process_waits_for_the_death_of_the_first(at: Scene, target: str) -> None:
    at.write("first")
    command = ["watch", "--sweep", at.file, "--target", target, "--interval", "0.1"]
    with processes.running([sys.executable, "-m", "acpc_lab", *command]) as first:
        wait_until(lambda: len(at.party.jobs) == 1)
        with pytest.raises(FailedPrecondition, match="another process"):
            at.run()
        first.kill()
        first.wait()
        at.write("second")
        at.run()
    assert len(at.party.jobs) == 2
