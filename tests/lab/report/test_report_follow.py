"""A page that follows its sweep: whole at every moment, through what goes wrong meanwhile."""

import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import processes
import pytest
from acpc_client.files import write_whole
from acpc_command import acpc_command
from acpc_lab.campaigns import Entry, TaskState
from acpc_lab.evidence import FamilyWise
from acpc_lab.report import from_sweep, render
from acpc_lab.sweeps import SweepFolder, SweepPlan
from report_samples import judged, kept_sweep, side
from waiting import GENEROUS_SECONDS, wait_until

ACPC = Path(sys.executable).with_name("acpc")
REFRESH = '<meta http-equiv="refresh" content="10">'


@pytest.fixture
def disk(tmp_path: Path) -> SweepFolder:
    """A sweep of four cells, the last of which is pending."""
    return SweepFolder(kept_sweep(tmp_path / "by noise.sweep"))


def plan_of(disk: SweepFolder) -> SweepPlan:
    plan = disk.read_plan()
    assert plan is not None
    return plan


class Following:
    """A run of ``acpc report --follow``."""

    def __init__(self, process: subprocess.Popen[str], page: Path, told: Path) -> None:
        self.process, self.page, self._told = process, page, told

    @property
    def told(self) -> str:
        return self._told.read_text()

    def says(self, words: str, times: int = 1) -> None:
        """Waits until it has said so on stderr."""
        wait_until(lambda: self.told.count(words) >= times, f"did not say {words!r}", pause=0.1)

    def until(self, words: str) -> str:
        """The page as soon as it has these words; whole, whenever it is looked at."""
        found = [""]

        def read() -> bool:
            found[0] = self.page.read_text() if self.page.exists() else ""
            assert not found[0] or found[0].rstrip().endswith("</html>")
            return words in found[0]

        wait_until(read, f"no {words!r} on the page", pause=0.1)
        return found[0]

    def ends(self) -> str:
        """What the last page says."""
        assert self.process.wait(GENEROUS_SECONDS) == 0, self.told
        page = self.page.read_text()
        assert page.rstrip().endswith("</html>")
        assert 'http-equiv="refresh"' not in page and "while it goes on" not in page
        assert "Traceback" not in self.told
        return page


def section(page: str, name: str) -> str:
    found = re.search(f'<section id="{name}">.*?</section>', page, re.DOTALL)
    return found[0]


@contextmanager
def following(source: Path, page: Path, *options: str) -> Iterator[Following]:
    told = page.with_name("told.txt")
    command = [ACPC, "report", source, "-o", page, "--follow", "--no-pictures", *options]
    with told.open("w") as file, processes.running(command, stderr=file) as process:
        yield Following(process, page, told)


@pytest.mark.process
def test_a_page_follows_its_sweep_until_all_is_measured(disk: SweepFolder, tmp_path: Path) -> None:
    """It says what waits and what runs, and shows what was asked for, as the last page does."""
    last = plan_of(disk).cells[3]
    data = from_sweep(disk.path).with_(focus=("noise-0",), family_wise=FamilyWise.NONE)
    wanted = render(data)
    page = tmp_path / "page.html"
    with following(disk.path, page, "--family-wise", "none", "--focus", "noise-0") as follower:
        first = follower.until(REFRESH)
        for part in ("verdicts", "worst"):
            assert section(first, part) == section(wanted, part)
        assert "Pending: noise-0.08 under gaussian_blur:15." in first
        assert "while it goes on; loads itself again" in first
        with disk.journal.writing():
            disk.journal.note(last.id, Entry(TaskState.QUEUED, 1, "operations/3"))
            follower.until("Queued: noise-0.08 under")
            disk.save(last, judged(side("noise-0.08", 0.1, 2.0), side("noise-0", 2.0, 2.0)))
            disk.journal.note(last.id, Entry(TaskState.SUCCEEDED, 1, "operations/3"))
        whole = follower.ends()
    assert "4 of 4 measured" in follower.told
    assert "Queued:" not in whole


@pytest.mark.process
def test_a_page_outlives_what_goes_wrong_and_ends_with_an_interrupt(
    disk: SweepFolder, tmp_path: Path
) -> None:
    """A sweep that has not begun, is damaged, or vanishes; a full disk; another writer."""
    page, away = tmp_path / "page.html", tmp_path / "away"
    plan, journal = disk.path / "plan.json", disk.journal.path
    plan.rename(away)
    with following(disk.path, page) as follower:
        follower.says("holds no plan; waiting for it")
        away.rename(plan)
        first = follower.until("Pending: noise-0.08")
        write_whole(page, first.encode())
        whole = journal.read_bytes()
        journal.write_bytes(whole + b"{}\n")
        follower.says("is no event of a sweep")
        disk.path.rename(away)
        follower.says("holds no plan", times=2)
        pid, kind = follower.process.pid, resource.RLIMIT_FSIZE
        _, most = resource.prlimit(pid, kind)
        resource.prlimit(pid, kind, (1000, most))
        journal = away / journal.name
        journal.write_bytes(whole)
        away.rename(disk.path)
        follower.says(f"cannot write {page}: File too large; trying again")
        assert page.read_text() == first
        with disk.journal.writing():
            cell = plan_of(disk).cells[3]
            disk.journal.note(cell.id, Entry(TaskState.RUNNING, 1, "operations/3"))
        resource.prlimit(pid, kind, (most, most))
        follower.until("Running: noise-0.08")
        follower.says("was written by another program, too")
        follower.process.send_signal(signal.SIGINT)
        assert "Running: noise-0.08" in follower.ends()
    assert [path.name for path in tmp_path.glob(".page*")] == []


def test_only_what_a_sweep_writes_changes_its_stamp(disk: SweepFolder) -> None:
    """A page that is written into the folder does not; clocks that go back hide nothing."""
    seen = [disk.stamp()]
    (disk.path / "page.html").write_text("a page")
    write_whole(disk.path / "other.html", b"another")
    assert disk.stamp() == seen[0]
    cell = plan_of(disk).cells[3]
    with disk.journal.writing():
        disk.journal.note(cell.id, Entry(TaskState.QUEUED, 1, "operations/3"))
    os.utime(disk.journal.path, (0, 0))
    seen.append(disk.stamp())
    disk.save(cell, judged(side("noise-0.08", 0.1, 2.0), side("noise-0", 2.0, 2.0)))
    seen.append(disk.stamp())
    disk.write_plan(plan_of(disk))
    seen.append(disk.stamp())
    assert all(one != other for i, one in enumerate(seen) for other in seen[:i])
    (disk.path / "plan.json").unlink()
    assert disk.stamp() is None


def test_one_sweep_is_followed(disk: SweepFolder) -> None:
    report = acpc_command("report", disk.path, "--follow")
    report(disk.path, code=2)
    report("--run", "nothing", code=2)
