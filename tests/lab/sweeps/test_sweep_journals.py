"""The folder of a sweep: whatever a crash leaves of it can be read and gone on with."""

import json
import shutil
from pathlib import Path

import pytest
from acpc_client.errors import ArgumentError, FailedPrecondition
from acpc_lab.campaigns import Entry, Journal
from acpc_lab.sweeps import SweepFolder, SweepResults, TaskState
from sweep_plans import POLL, Scene
from test_sweep_plans import CELL


def test_a_journal_cut_at_any_byte_is_read_and_written_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "x.sweep")
    attempts = [Entry(TaskState.FAILED, number, message="ä") for number in (1, 2, 3)]
    with journal.writing():
        for entry in attempts[:2]:
            journal.note(CELL.id, entry)
    content = journal.path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(len(content)):
        journal.path.write_bytes(content[:cut])
        whole = sum(end <= cut for end in ends)
        assert len(list(journal.events())) == whole
        with journal.writing():
            journal.note(CELL.id, attempts[2])
        written = [json.loads(line)["attempt"] for line in journal.path.read_text().splitlines()]
        assert written == [*[1, 2][:whole], 3]


def test_a_line_that_is_no_event_is_not_passed_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    moved = '{"event": "moved", "cell": "x"'
    lines = [
        *("[]", "{", '{"event": "ended"}', "\x00", "[" * 100_000, '{"event": "ended", "cell": []}'),
        *(f"{moved}{rest}}}" for rest in ("", ', "state": "lost"')),
        *(f'{moved}, "state": "queued", {rest}}}' for rest in ('"operation": 5', '"attempt": "1"')),
    ]
    for line in lines:
        (tmp_path / "journal.jsonl").write_text(f"{line}\n")
        with pytest.raises(FailedPrecondition, match=r"line 1 of .* is no event of a sweep"):
            journal.entries()


def test_a_run_killed_after_any_event_goes_on_and_doubles_no_job(at: Scene) -> None:
    at.party.looks = 0
    sweep = at.sweep()
    wanted = [item.score for item in sweep.run(at.client, poll=POLL)]
    jobs = set(at.party.jobs)
    finished = sweep.folder.with_name("finished")
    sweep.folder.rename(finished)
    lines = (finished / "journal.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 4
    results = sorted((finished / "results").iterdir())
    for events in range(len(lines) + 1):
        for files in range(len(results) + 1):
            shutil.copytree(finished, sweep.folder, dirs_exist_ok=True)
            (sweep.folder / "journal.jsonl").write_bytes(b"".join(lines[:events]))
            for file in results[files:]:
                (sweep.folder / "results" / file.name).unlink()
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
