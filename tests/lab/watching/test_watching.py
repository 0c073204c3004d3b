"""A watch: every checkpoint once, by name and content, through whatever happens."""

import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from acpc_client import EvidenceOptions, Outcome
from acpc_client.errors import FailedPrecondition
from acpc_client.sync.client import AcpcClient
from acpc_lab.cli.sweep_tables import results_table
from acpc_lab.evidence import at_epoch
from acpc_lab.report import from_sweep
from acpc_lab.sweeps import SweepProgress, SweepResults, load_spec
from acpc_lab.watching import Finder, ScoredCheckpoint, Watch
from acpc_lab.watching.finding import WeightsFile
from client_messages import status
from grpc import StatusCode
from job_counterparty import DOCUMENT, FAILED, JobParty
from waiting import wait_until
from written_weights import saved

Write = Callable[..., Path]


class Told(list[ScoredCheckpoint]):
    """What a listener was told."""

    @property
    def seen(self) -> list[tuple[str, str, Outcome]]:
        return [(x.arrival.ref.name, x.arrival.ref.weights, x.outcome) for x in self]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def trouble() -> list[str]:
    return []


@pytest.fixture
def make(file: Path, root: Path, told: Told, trouble: list[str]) -> Callable[..., Watch]:
    """A watch, as a program that was started again has one; keys change the sweep file."""

    def make(**changes: Any) -> Watch:  # noqa: ANN401
        document = yaml.safe_load(file.read_text())
        file.write_text(yaml.safe_dump({**document, **changes}))
        return Watch(
            load_spec(file), file.with_name("gate.watch"), Finder(root, "", 0.1),
            listeners=[told.append], on_trouble=trouble.append,
        )  # fmt: skip

    return make


def test_each_is_scored_once_in_the_order_of_epochs(
    make: Callable[..., Watch], write: Write, client: AcpcClient, party: JobParty, told: Told
) -> None:
    for epoch in (10, 2, 1):
        write("run", f"weights_epoch_{epoch}.pt")
    for _ in range(3):
        make(concurrency=1).run(client, once=True)
    submitted = [job.request.checkpoint.weights for job in party.jobs.values()]
    assert submitted == [f"weights_epoch_{epoch}.pt" for epoch in (1, 2, 10)]
    assert told.seen == [("run", name, Outcome.PASSED) for name in submitted]


def test_other_content_under_a_name_is_scored_again_and_a_touch_is_not(
    make: Callable[..., Watch], write: Write, client: AcpcClient, party: JobParty, told: Told,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    weights = write("a")
    make().run(client, once=True)
    os.utime(weights)
    make().run(client, once=True)
    assert len(party.jobs) == 1
    write("a", content="b")
    make().run(client, once=True)
    assert len(party.jobs) == 2
    write("a", content="a")  # this content is known under this name
    make().run(client, once=True)
    assert len(party.jobs) == len(told) == 2
    results = SweepResults.open(make().folder)
    contents = [row["content"] for row in results.rows()]
    assert len(set(contents)) == 2
    monkeypatch.setenv("COLUMNS", "300")
    results_table(results)
    shown = capsys.readouterr().out
    assert all(f"a ({content[:8]})" in shown for content in contents)


def test_a_lost_folder_finds_its_jobs_again(
    make: Callable[..., Watch], file: Path, write: Write, client: AcpcClient, party: JobParty
) -> None:
    write("a")
    make().run(client, once=True)
    file.with_name("gate.watch").rename(file.with_name("lost"))
    make().run(client, once=True)
    assert len(party.jobs) == 1


def test_reports_and_tables_read_its_folder(
    make: Callable[..., Watch], file: Path, write: Write, client: AcpcClient
) -> None:
    """A report is by training run and epoch, where the file gives no such labels."""
    write("a")
    write("a", "weights_epoch_2.pt", content="b")
    write("runs/epoch-3", content="c")
    make().run(client, once=True)
    results = SweepResults.open(file.with_name("gate.watch"))
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


def test_what_an_arrival_writes_does_not_grow_with_those_before(
    make: Callable[..., Watch], file: Path, write: Write, client: AcpcClient
) -> None:
    folder = file.with_name("gate.watch")
    for number in (1, 2, 3):
        write(f"run{number}")
        make().run(client, once=True)
        if number == 1:
            plan = (folder / "plan.json").read_bytes()
    assert (folder / "plan.json").read_bytes() == plan
    assert len(SweepResults.open(folder)) == 3
    make(description="another").run(client, once=True)
    again = SweepResults.open(folder)
    assert (again.description, len(again)) == ("another", 3)
    assert again.result().request["description"] == "another"


def test_only_what_the_file_means_is_scored(
    make: Callable[..., Watch], write: Write, client: AcpcClient, party: JobParty, told: Told
) -> None:
    for name in ("runs/1", "other/1"):
        write(name, "weights_epoch_1.pt")
        write(name, "last.pt")
    group = {"name": "runs/{run}", "weights": "weights_epoch_{step}.pt"}
    make(checkpoints=[group]).run(client, once=True)
    assert told.seen == [("runs/1", "weights_epoch_1.pt", Outcome.PASSED)]
    assert told[0].results[0].cell.labels == {"run": 1, "step": 1}


def test_a_checkpoint_waits_for_its_reference(
    make: Callable[..., Watch], write: Write, client: AcpcClient, party: JobParty,
    told: Told, trouble: list[str],
) -> None:  # fmt: skip
    write("a")
    reference = make(reference="base")
    reference.run(client, once=True)
    assert not party.jobs
    assert [item.ref.name for item in reference.unplanned] == ["a"]
    assert "its reference base is not at the server" in trouble[0]
    party.listing["base"] = ["weights.pt"]
    make().run(client, once=True)
    assert told.seen == [("a", "weights.pt", Outcome.PASSED)]


def test_what_was_replaced_or_removed_while_it_waited_is_not_scored_in_its_place(
    make: Callable[..., Watch], write: Write, client: AcpcClient, party: JobParty,
    told: Told, trouble: list[str],
) -> None:  # fmt: skip
    write("a")
    removed = write("b")
    make(reference="base").run(client, once=True)
    write("a", content="b")
    removed.unlink()
    party.listing["base"] = ["weights.pt"]
    watch = make()
    watch.run(client, once=True)
    assert told.seen == [("a", "weights.pt", Outcome.PASSED)]
    assert len(party.jobs) == 1 and not watch.unplanned


def test_what_is_replaced_in_the_queue_is_not_scored_under_its_old_content(
    make: Callable[..., Watch], write: Write, client: AcpcClient, party: JobParty, told: Told,
    trouble: list[str],
) -> None:  # fmt: skip
    write("a")
    write("b")
    party.looks = 3
    moved = threading.Event()

    def replace(now: SweepProgress) -> None:
        if len(now.tasks) == 2 and not moved.is_set():  # the first is under way, the second waits
            moved.set()
            write("b", content="b")

    make(concurrency=1).run(client, once=True, interval=3600, on_update=replace)
    assert [one.arrival.ref.name for one in told] == ["a", "b"]
    assert told[1].outcome is Outcome.UNSPECIFIED
    assert "removed or replaced" in told[1].results[0].message
    make().run(client, once=True)
    assert told.seen[2:] == [("b", "weights.pt", Outcome.PASSED)]
    assert len(party.jobs) == 2
    assert trouble == []


class Killed(BaseException):
    """Stands for a watcher that is killed."""


def test_what_is_gone_when_a_watch_begins_neither_waits_for_ever_nor_hides_a_score(
    make: Callable[..., Watch], file: Path, root: Path, write: Write, client: AcpcClient,
    party: JobParty, told: Told, trouble: list[str],
) -> None:  # fmt: skip
    under_way = write("a")
    write("b")
    touched = write("c")
    party.looks = 3

    def killed(now: SweepProgress) -> None:
        if len(now.tasks) == 3:  # the first is under way, the others wait
            raise Killed

    with pytest.raises(Killed):
        make(concurrency=1).run(client, once=True, on_update=killed)
    away = root.rename(root.with_name("away"))
    with pytest.raises(FailedPrecondition, match="cannot read"):
        make().run(client, once=True)
    assert not trouble, "nothing is gone while the folder is away"
    away.rename(root)
    under_way.unlink()
    write("b", content="b")
    os.utime(touched)
    for _ in range(2):
        make().run(client, once=True, interval=0.1)
    assert told.seen == [(name, "weights.pt", Outcome.PASSED) for name in "acb"]
    assert trouble == ["b (weights.pt) was removed or replaced before its score"]
    data = from_sweep(file.with_name("gate.watch"))
    assert (data.pending, data.notes) == (0, ())
    assert [cell.score is not None for cell in data.cells] == [True, False, True, True]
    assert "were removed or replaced" in data.cells[1].problem
    assert len({cell.name for cell in data.cells}) == 4, "contents of one name are told apart"


def test_what_is_written_while_it_is_read_is_read_again(
    make: Callable[..., Watch], write: Write, client: AcpcClient, party: JobParty, told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    write("a")
    real = WeightsFile.digest

    def digest(found: WeightsFile) -> str:
        before = real(found)
        monkeypatch.undo()
        write("a", content="b")
        return before

    monkeypatch.setattr(WeightsFile, "digest", digest)
    make().run(client, once=True, interval=0.1)
    (scored,) = told
    assert len(party.jobs) == 1
    found = Finder(Path(scored.results.folder.parent, "checkpoints"), "", 0.1).look()
    assert [item.digest() for item in found] == [scored.arrival.digest]


def test_a_server_that_has_another_root_is_said_to(
    make: Callable[..., Watch], write: Write, client: AcpcClient, party: JobParty, told: Told
) -> None:
    write("a")
    gone = status(StatusCode.NOT_FOUND, "no checkpoint 'a'; see acpc checkpoints list")
    party.refusals["ScoreCheckpoint"] = deque([gone])
    make().run(client, once=True)
    assert told[0].outcome is Outcome.UNSPECIFIED
    assert "say with --prefix what it is called there" in told[0].results[0].message
    make().run(client, once=True)  # another attempt
    assert told.seen[1:] == [("a", "weights.pt", Outcome.PASSED)]


@pytest.mark.parametrize("halflife", [None, 10, False])
def test_the_epochs_of_a_run_share_the_error(
    halflife: int | None, make: Callable[..., Watch], write: Write, client: AcpcClient,
    party: JobParty, told: Told,
) -> None:  # fmt: skip
    for name in ("weights_epoch_0.pt", "weights_epoch_7.pt", "last.pt"):
        write("run", name)
    said = {} if halflife is None else {"evidence": {"error_halflife": halflife}}
    make(**said).run(client, once=True)
    asked = {
        job.request.checkpoint.weights: EvidenceOptions.from_message(job.request.evidence)
        for job in party.jobs.values()
    }
    shared = {None: 100, False: None}.get(halflife, halflife)
    assert asked == {
        "weights_epoch_0.pt": at_epoch(EvidenceOptions(), 0, shared),
        "weights_epoch_7.pt": at_epoch(EvidenceOptions(), 7, shared),
        "last.pt": EvidenceOptions(),
    }
    assert told[0].results[0].cell.evidence == asked["weights_epoch_0.pt"]
    assert told[0].to_dict()["confidence"] is None  # this server computes no evidence


def test_a_listener_that_raises_stops_nothing(
    file: Path, root: Path, write: Write, client: AcpcClient, told: Told, trouble: list[str]
) -> None:
    def broken(scored: ScoredCheckpoint) -> None:
        raise ValueError(f"of {scored.arrival.ref.name}")

    write("a")
    write("b")
    watch = Watch(
        load_spec(file), file.with_name("gate.watch"), Finder(root, "", 0.1),
        listeners=[broken, told.append], on_trouble=trouble.append,
    )  # fmt: skip
    watch.run(client, once=True)
    assert len(told) == 2
    assert trouble == ["a: ValueError: of a", "b: ValueError: of b"]


def test_folders_that_vanish_and_disks_that_are_full_are_waited_for(
    make: Callable[..., Watch], root: Path, write: Write, client: AcpcClient, party: JobParty,
    told: Told, trouble: list[str], monkeypatch: pytest.MonkeyPatch, going_on: Callable[..., Any],
) -> None:  # fmt: skip
    monkeypatch.setattr("acpc_lab.watching.watch._RETRY_S", 0.01)
    away = root.rename(root.with_name("away"))
    full, real = threading.Event(), os.fsync

    def fsync(file: int) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)

    with going_on(make(), client):
        wait_until(lambda: trouble)
        assert "cannot read" in trouble[0]
        away.rename(root)
        write("a")
        wait_until(lambda: len(told) == 1)
        full.set()
        write("b")
        wait_until(lambda: len(trouble) == 2)
        assert "No space left on device; jobs go on at the server" in trouble[1]
        full.clear()
        wait_until(lambda: len(told) == 2)
    assert len(party.jobs) == 2


def test_once_says_what_it_cannot_use(
    make: Callable[..., Watch], root: Path, write: Write, client: AcpcClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    write("a")
    away = root.rename(root.with_name("away"))
    with pytest.raises(FailedPrecondition, match=r"cannot read .*checkpoints: No such file"):
        make().run(client, once=True)
    away.rename(root)

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FailedPrecondition, match="No space left on device; jobs go on"):
        make().run(client, once=True)


def test_a_second_watch_of_the_same_folder_is_rejected(
    make: Callable[..., Watch], client: AcpcClient, going_on: Callable[..., Any]
) -> None:
    first = make()
    with going_on(first, client):
        wait_until((first.folder / "results").is_dir)
        with pytest.raises(FailedPrecondition, match="another process"):
            make().run(client, once=True)


def test_a_torn_file_is_told_and_not_read(
    make: Callable[..., Watch], write: Write, client: AcpcClient, party: JobParty,
    trouble: list[str], going_on: Callable[..., Any],
) -> None:  # fmt: skip
    write("a").write_bytes(saved("a")[:-1])
    with going_on(make(), client):
        wait_until(lambda: trouble)
    assert "is not whole" in trouble[0]
    assert not party.jobs


def test_the_verdict_is_of_all_cells(
    make: Callable[..., Watch], write: Write, client: AcpcClient, party: JobParty, told: Told
) -> None:
    write("a")
    party.fates["a"] = deque([FAILED])
    make(shifts=DOCUMENT["shifts"]).run(client, once=True)
    assert told.seen == [("a", "weights.pt", Outcome.FAILED)]
    assert told[0].to_dict()["verdict"] == "failed"
    assert len(told[0].results) == 2
