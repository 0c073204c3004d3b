"""A watch: every checkpoint once, by name and content, through whatever happens."""

import errno
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
from acpc_client import EvidenceOptions, Outcome
from acpc_client.errors import FailedPrecondition, RunEnded
from acpc_client.sync.client import AcpcClient
from acpc_lab.cli.sweep import results_table
from acpc_lab.evidence import at_epoch
from acpc_lab.report import from_sweep
from acpc_lab.sweeps import SweepProgress, SweepResults, load_spec
from acpc_lab.watching import Finder, Listener, ScoredCheckpoint, Watch
from acpc_lab.watching.finding import WeightsFile
from client_messages import score_response, status, sure
from grpc import StatusCode
from job_counterparty import DOCUMENT, FAILED, JobParty
from waiting import wait_until
from written_weights import Writer, saved


@dataclass
class Scene:
    """A watched folder with a counterparty, and what listeners and the log were given."""

    file: Path
    write: Writer
    client: AcpcClient
    party: JobParty
    told: list[ScoredCheckpoint] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root = self.write.root
        self.listeners: list[Listener] = [self.told.append]

    def make(self, **changes: Any) -> Watch:
        """A watch, as a program that was started again has one; keys change the sweep file."""
        document = yaml.safe_load(self.file.read_text())
        self.file.write_text(yaml.safe_dump({**document, **changes}))
        return Watch(
            load_spec(self.file), self.file.with_name("gate.watch"), Finder(self.root, "", 0.1),
            listeners=self.listeners, on_trouble=self.trouble.append,
        )  # fmt: skip

    def run(self, **changes: Any) -> None:
        """Watches once."""
        self.make(**changes).run(self.client, once=True)

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
def at(file: Path, write: Writer, client: AcpcClient, party: JobParty) -> Scene:
    return Scene(file, write, client, party)


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
    weights = at.write("a")
    at.run()
    os.utime(weights)
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
    results_table(results)
    shown = capsys.readouterr().out
    assert all(f"a ({content[:8]})" in shown for content in contents)


def test_reports_and_tables_read_its_folder(at: Scene) -> None:
    """A report is by training run and epoch, where the at.file gives no such labels."""
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


def test_what_an_arrival_writes_does_not_grow_with_those_before(at: Scene) -> None:
    folder = at.file.with_name("gate.watch")
    for number in (1, 2, 3):
        at.write(f"run{number}")
        at.run()
        if number == 1:
            plan = (folder / "plan.json").read_bytes()
    assert (folder / "plan.json").read_bytes() == plan
    assert len(SweepResults.open(folder)) == 3
    at.run(description="another")
    again = SweepResults.open(folder)
    assert (again.plan.description, len(again)) == ("another", 3)
    assert again.result().request["description"] == "another"


def test_only_what_the_file_means_is_scored(at: Scene) -> None:
    for name in ("runs/1", "other/1"):
        at.write(name, "weights_epoch_1.pt")
        at.write(name, "last.pt")
    group = {"name": "runs/{run}", "weights": "weights_epoch_{step}.pt"}
    at.run(checkpoints=[group])
    assert at.seen == [("runs/1", "weights_epoch_1.pt", Outcome.PASSED)]
    assert at.told[0].results[0].cell.labels == {"run": 1, "step": 1}
    journal = at.file.with_name("gate.watch") / "journal.jsonl"
    assert "last.pt" not in journal.read_text(), "what is not meant is not read either"


def test_a_checkpoint_waits_for_its_reference(at: Scene) -> None:
    at.write("a")
    reference = at.make(reference="base")
    reference.run(at.client, once=True)
    assert not at.party.jobs
    assert [item.ref.name for item in reference.unplanned] == ["a"]
    assert "its reference base is not at the server" in at.trouble[0]
    at.party.listing["base"] = ["weights.pt"]
    at.run()
    assert at.seen == [("a", "weights.pt", Outcome.PASSED)]


def test_what_was_replaced_or_removed_while_it_waited_is_not_scored_in_its_place(at: Scene) -> None:
    at.write("a")
    removed = at.write("b")
    at.run(reference="base")
    at.write("a", content="b")
    removed.unlink()
    at.party.listing["base"] = ["weights.pt"]
    watch = at.make()
    watch.run(at.client, once=True)
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

    at.make(concurrency=1).run(at.client, once=True, interval=3600, on_update=replace)
    assert [one.arrival.ref.name for one in at.told] == ["a", "b"]
    assert at.told[1].outcome is Outcome.UNSPECIFIED
    assert "removed or replaced" in at.told[1].results[0].message
    at.run()
    assert at.seen[2:] == [("b", "weights.pt", Outcome.PASSED)]
    assert len(at.party.jobs) == 2
    assert at.trouble == []


def test_what_comes_back_is_scored(at: Scene) -> None:
    """As where the watch once looked at the wrong folder, or a disk was not there."""
    at.write("a")
    at.party.fates["a"] = deque([status(StatusCode.FAILED_PRECONDITION, "it does not fit")])
    at.run()
    away = at.root.rename(at.root.with_name("away"))
    at.root.mkdir()
    for _ in range(2):
        at.run()
    at.root.rmdir()
    away.rename(at.root)
    for _ in range(2):
        at.run()
    none, passed = Outcome.UNSPECIFIED, Outcome.PASSED
    assert [outcome for *_, outcome in at.seen] == [none, none, passed]


class Killed(BaseException):
    """Stands for a watcher that is killed."""


def test_what_is_gone_when_a_watch_begins_neither_waits_for_ever_nor_hides_a_score(
    at: Scene,
) -> None:
    under_way = at.write("a")
    at.write("b")
    touched = at.write("c")
    at.party.looks = 3

    def killed(now: SweepProgress) -> None:
        if len(now.tasks) == 3:  # the first is under way, the others wait
            raise Killed

    with pytest.raises(Killed):
        at.make(concurrency=1).run(at.client, once=True, on_update=killed)
    away = at.root.rename(at.root.with_name("away"))
    with pytest.raises(FailedPrecondition, match="cannot read"):
        at.run()
    assert not at.trouble, "nothing is gone while the folder is away"
    away.rename(at.root)
    under_way.unlink()
    at.write("b", content="b")
    os.utime(touched)
    for _ in range(2):
        at.make().run(at.client, once=True, interval=0.1)
    passed, gone = Outcome.PASSED, Outcome.UNSPECIFIED  # which is told once
    ended = [("a", passed), ("b", gone), ("c", passed), ("b", passed)]
    assert at.seen == [(name, "weights.pt", outcome) for name, outcome in ended]
    assert at.trouble == []
    data = from_sweep(at.file.with_name("gate.watch"))
    assert (data.pending, data.notes) == (0, ())
    assert [cell.score is not None for cell in data.cells] == [True, False, True, True]
    assert "were removed or replaced" in data.cells[1].problem
    assert len({cell.name for cell in data.cells}) == 4, "contents of one name are told apart"


def test_what_is_written_while_it_is_read_is_read_again(
    at: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    at.write("a")
    real = WeightsFile.digest

    def digest(found: WeightsFile) -> str:
        before = real(found)
        monkeypatch.undo()
        at.write("a", content="b")
        return before

    monkeypatch.setattr(WeightsFile, "digest", digest)
    at.make().run(at.client, once=True, interval=0.1)
    (scored,) = at.told
    assert len(at.party.jobs) == 1
    found = Finder(Path(scored.results.folder.parent, "checkpoints"), "", 0.1).look()
    assert [item.digest() for item in found] == [scored.arrival.digest]


def test_a_server_that_has_another_root_is_said_to(at: Scene) -> None:
    at.write("a")
    gone = status(StatusCode.NOT_FOUND, "no checkpoint 'a'; see acpc list checkpoints")
    at.party.refusals["ScoreCheckpoint"] = deque([gone])
    at.run()
    assert at.told[0].outcome is Outcome.UNSPECIFIED
    assert "say with --prefix what it is called there" in at.told[0].results[0].message
    at.run()  # another attempt
    assert at.seen[1:] == [("a", "weights.pt", Outcome.PASSED)]


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


def test_folders_that_vanish_and_disks_that_are_full_are_waited_for(
    at: Scene, full: threading.Event
) -> None:
    away = at.root.rename(at.root.with_name("away"))
    with at.going_on(at.make()):
        wait_until(lambda: at.trouble)
        assert "cannot read" in at.trouble[0]
        away.rename(at.root)
        at.write("a")
        wait_until(lambda: len(at.told) == 1)
        full.set()
        at.write("b")
        wait_until(lambda: len(at.trouble) == 2)
        assert "No space left on device; jobs go on at the server" in at.trouble[1]
        full.clear()
        wait_until(lambda: len(at.told) == 2)
    assert len(at.party.jobs) == 2


def test_once_says_what_it_cannot_use(at: Scene, full: threading.Event) -> None:
    at.write("a")
    away = at.root.rename(at.root.with_name("away"))
    with pytest.raises(FailedPrecondition, match=r"cannot read .*checkpoints: No such file"):
        at.run()
    away.rename(at.root)
    full.set()
    with pytest.raises(FailedPrecondition, match="No space left on device; jobs go on"):
        at.run()


def test_a_torn_file_is_told_and_not_read(at: Scene) -> None:
    at.write("a").write_bytes(saved("a")[:-1])
    with at.going_on(at.make()):
        wait_until(lambda: at.trouble)
    assert "is not whole" in at.trouble[0]
    assert not at.party.jobs


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
    command = ["watch", at.root, "--sweep", at.file, "--target", target, "--interval", "0.1"]
    with processes.running([sys.executable, "-m", "acpc_lab", *command]) as first:
        wait_until(lambda: len(at.party.jobs) == 1)
        with pytest.raises(FailedPrecondition, match="another process"):
            at.run()
        first.kill()
        first.wait()
        at.write("second")
        at.run()
    assert len(at.party.jobs) == 2
