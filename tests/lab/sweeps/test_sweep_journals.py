"""The folder of a sweep: whatever a crash or an earlier release leaves of it is gone on with."""

import csv
import hashlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acpc.contract import to_plain
from acpc_client.errors import ArgumentError, FailedPrecondition
from acpc_command import Acpc, acpc_command
from acpc_lab.campaigns import Entry
from acpc_lab.sweeps import SweepFolder, SweepProgress, SweepResults, TaskState
from job_counterparty import JobParty
from sweep_plans import POLL, Scene
from test_sweep_plans import CELL


def test_what_an_earlier_release_wrote_is_read_cut_at_any_byte_and_written_on(
    tmp_path: Path,
) -> None:
    first, second, third = (Entry(TaskState.FAILED, n, message="ä") for n in (1, 2, 3))
    lines = [
        json.dumps({"time": "now", "event": "moved", "cell": CELL.id, **to_plain(entry)})
        for entry in (first, second)
    ]
    content = "".join(f"{line}\n" for line in lines).encode()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    cuts = {end + near for end in (0, *ends) for near in range(-2, 3)} | {len(content) // 3}
    for cut in sorted(cuts & {*range(len(content) + 1)}):
        folder = SweepFolder(tmp_path / str(cut))
        folder.path.mkdir()
        (folder.path / "journal.jsonl").write_bytes(content[:cut])
        known = [{}, {CELL.id: first}, {CELL.id: second}][sum(end <= cut for end in ends)]
        assert folder.entries() == known
        with folder.writing():
            folder.write_entries({CELL.id: third})
        assert SweepFolder(folder.path).entries() == {CELL.id: third}


def test_a_state_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    wrong = ("[]", "{", "[" * 100_000, "\x00", '{"x": 5}', '{"x": {"state": "lost"}}')
    for text in (*wrong, '{"x": {"operation": 5}}', '{"x": {"attempt": "1"}}', ""):
        (tmp_path / "state.json").write_text(text)
        with pytest.raises(FailedPrecondition, match="cannot be read as the state of a sweep"):
            SweepFolder(tmp_path).entries()
    (tmp_path / "state.json").unlink()
    moved = '{"event": "moved"'
    for line in ("[]", "{", f"{moved}}}", f'{moved}, "cell": "x", "state": "lost"}}'):
        (tmp_path / "journal.jsonl").write_text(f"{line}\n")
        with pytest.raises(FailedPrecondition, match="cannot be read as the state of a sweep"):
            SweepFolder(tmp_path).entries()


def test_a_run_killed_after_any_turn_goes_on_and_doubles_no_job(at: Scene) -> None:
    sweep = at.sweep()
    file = sweep.folder / "state.json"
    states = [b""]
    at.party.looks = 2

    def look(now: SweepProgress) -> None:
        at.party.looks = 2 + 2 * len(at.party.jobs)  # the second job ends later
        if file.exists() and file.read_bytes() != states[-1]:
            states.append(file.read_bytes())

    wanted = [item.score for item in sweep.run(at.client, poll=POLL, on_update=look)]
    states.append(file.read_bytes())
    assert len(states) >= 4, "before, under way, one done, both done"
    jobs = set(at.party.jobs)
    finished = sweep.folder.with_name("finished")
    sweep.folder.rename(finished)
    results = sorted((finished / "results").iterdir())
    for state in states:
        for files in range(len(results) + 1):
            shutil.copytree(finished, sweep.folder, dirs_exist_ok=True)
            if state:
                file.write_bytes(state)
            else:
                file.unlink()
            for result in results[files:]:
                (sweep.folder / "results" / result.name).unlink()
            assert [item.score for item in sweep.run(at.client, poll=POLL)] == wanted
            assert set(at.party.jobs) == jobs
            shutil.rmtree(sweep.folder)


def test_a_result_that_cannot_be_read_is_fetched_again(at: Scene) -> None:
    at.party.looks = 0
    sweep = at.sweep()
    wanted = [item.score for item in sweep.run(at.client, poll=POLL)]
    jobs = set(at.party.jobs)
    damaged, *_ = sorted((sweep.folder / "results").iterdir())
    for content in (b"", damaged.read_bytes()[:100]):
        damaged.write_bytes(content)
        assert sorted(item.state.value for item in sweep.results()) == ["queued", "succeeded"]
        assert [item.score for item in sweep.run(at.client, poll=POLL)] == wanted
    assert set(at.party.jobs) == jobs


@pytest.mark.parametrize(
    "content",
    ["", "[", "[1]", "[" * 100_000, "{}", '{"format": NaN}', '{"format": 2}',
     '{"format": 1, "cells": 3}'],
)  # fmt: skip
def test_a_plan_that_cannot_be_read_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(FailedPrecondition, match=r"plan\.json cannot be read as a plan"):
        SweepFolder(tmp_path).read_plan()


def test_results_are_opened_by_file_or_by_folder(at: Scene, tmp_path: Path) -> None:
    sweep = at.sweep()
    with pytest.raises(ArgumentError, match="has not been run yet"):
        sweep.results()
    done = sweep.run(at.client, poll=POLL)
    (tmp_path / "file.yaml").write_text(json.dumps(sweep.spec.document))  # JSON is YAML
    for place in (sweep.folder, tmp_path / "file.yaml"):
        opened = SweepResults.open(place)
        assert (opened.name, opened.folder) == ("mine", sweep.folder)
        assert [item.score for item in opened] == [item.score for item in done]
    with pytest.raises(ArgumentError, match="cannot read"):
        SweepResults.open(tmp_path / "none.yaml")


GOLDEN = Path(__file__).with_name("golden")
WRITTEN: dict[str, tuple[str, ...]] = {
    "cells.csv": (),
    "sweep.json": (),
    "each.csv": ("--correction", "none"),
    "anchors.csv": ("--anchors",),
}


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The folder that holds what was kept."""
    shutil.unpack_archive(GOLDEN / "kept.zip", tmp_path)
    return tmp_path


def as_held(written: Any, held: Any) -> Any:
    """What was written without the keys that a later release has added."""
    if isinstance(held, dict) and isinstance(written, dict):
        return {key: as_held(item, held[key]) for key, item in written.items() if key in held}
    if isinstance(held, list) and isinstance(written, list) and len(written) == len(held):
        return [as_held(ours, theirs) for ours, theirs in zip(written, held, strict=True)]
    return written


@pytest.fixture
def same(tmp_path: Path) -> Callable[[str], None]:
    """Compares a file that was written with the one that is held."""

    def compare(name: str) -> None:
        written, held = ((folder / name).read_text() for folder in (tmp_path, GOLDEN))
        if name.endswith(".json"):
            assert as_held(json.loads(written), json.loads(held)) == json.loads(held)
        elif name.endswith(".csv"):
            rows = [*csv.DictReader(io.StringIO(written))]
            wanted = [*csv.DictReader(io.StringIO(held))]
            assert [{key: row[key] for key in wanted[0]} for row in rows] == wanted
        else:
            assert written == held

    return compare


@pytest.mark.parametrize("name", WRITTEN)
def test_results_of_an_earlier_release_are_exported_as_they_were(
    kept: Path, same: Callable[[str], None], name: str
) -> None:
    acpc_command()("sweep", "show", kept / "kept.sweep", *WRITTEN[name], "--out", kept / name)
    same(name)


def test_what_a_ci_system_is_given_is_as_it_was(
    kept: Path, same: Callable[[str], None], unused_target: str
) -> None:
    """Of a gate over cells that passed, failed and have no score; no server is asked."""
    run = acpc_command("sweep", "run", kept / "kept.yaml", "--watch", ACPC_TARGET=unused_target)
    run("--junit", kept / "junit.xml", code=4)
    same("junit.xml")


def test_a_sweep_that_was_killed_goes_on_where_it_was(
    kept: Path, party: JobParty, target: str
) -> None:
    """One cell had failed: it alone is submitted again, as its second attempt."""
    party.looks = 0
    acpc: Acpc = acpc_command(ACPC_TARGET=target)
    acpc("sweep", "run", kept / "kept.yaml", "--no-gate", code=None)
    (job,) = party.jobs.values()
    assert job.request.checkpoint.name == "run1/noise-0.08"
    assert job.request.HasField("anchors") and job.request.request_id == next(iter(party.jobs))
    counted = acpc("sweep", "show", kept / "kept.yaml", "--offline").stdout
    assert "kept: 12 cells: 12 succeeded" in counted


def test_a_watch_goes_on_where_it_was(kept: Path, party: JobParty, target: str) -> None:
    """Nothing that was scored is scored again: the server says what the files hold."""
    party.listing.clear()
    for file in (kept / "checkpoints").rglob("*.pt"):
        parts = (file.with_name("config.json"), file)
        content = hashlib.sha256(b"".join(hashlib.sha256(x.read_bytes()).digest() for x in parts))
        name = str(file.parent.relative_to(kept / "checkpoints"))
        party.write(name, file.name)
        party.written[name, file.name] = ("now", content.hexdigest(), "")
    acpc = acpc_command("watch", "--sweep", kept / "seen.yaml", "--once", "--interval", "0.1")
    ended = acpc(code=5, ACPC_TARGET=target)
    assert len(party.written) == 3
    assert party.jobs == {} and "nothing was judged" in ended.stderr
