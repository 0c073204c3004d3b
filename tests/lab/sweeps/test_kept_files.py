"""What people hold of an earlier release: its folders are read, and give the same files again.

``golden/kept.zip`` holds a sweep whose run was killed (``kept``), and a watch (``seen``) with its
checkpoints, as release 0.1 wrote them; beside it lies what that release made of them.
"""

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acpc_command import Acpc, acpc_command
from job_counterparty import JobParty

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
    """Nothing that was scored is scored again, although the files have other times now."""
    acpc = acpc_command("watch", kept / "checkpoints", "--sweep", kept / "seen.yaml", "--once")
    ended = acpc(code=5, ACPC_TARGET=target)
    assert party.jobs == {} and "nothing was judged" in ended.stderr
