"""The watchdog leaves for what lasts, not for what passes, nor because it was stopped itself."""

import threading
import time
from collections.abc import Iterator

import pytest
from acpc_server import watchdog
from acpc_server.observe import ServerHealth
from acpc_server.scheduling import memory_short
from acpc_server.watchdog import Check, Watchdog, threads_short
from waiting import GENEROUS_SECONDS, wait_until


class Patient:
    """A watched thing that says what is wrong with it."""

    def __init__(self, seconds: float = 10.0, *, each_alone: bool = False) -> None:
        self.wrong = ""
        ready = seconds / 2
        look = lambda: self.wrong  # noqa: E731
        self.check = Check("part", look, seconds, 71, ready_seconds=ready, each_alone=each_alone)


ILL = ("ill", 1.0)
LOOKS = {
    "time counts from the first look that found it": (
        False, [("ill", 2.0), ILL, ("ill", 1.5)], 2.5),
    "another call is another matter": (
        True, [("call 1", 2.0), ("call 1", 2.0), ("call 2", 2.0)], 0.0),
    "another word for what is wrong is the same matter": (
        False, [("for 1 s", 2.0), ("for 2 s", 2.0), ("for 3 s", 2.0)], 4.0),
    "what comes and goes counts less what was well": (False, [ILL, ILL, ILL, ("", 1.0)] * 5, 5.0),
}  # fmt: skip


@pytest.mark.parametrize("case", LOOKS)
def test_for_how_long_something_is_wrong(case: str) -> None:
    each_alone, looks, seconds = LOOKS[case]
    patient = Patient(each_alone=each_alone)
    for patient.wrong, elapsed in looks:
        patient.check.observe(elapsed)
    assert patient.check.wrong_seconds == seconds


def test_a_check_that_raises_is_wrong() -> None:
    def look() -> str:
        raise MemoryError

    check = Check("part", look, 10.0, 71)
    check.observe(1.0)
    check.observe(1.0)
    assert (check.wrong, check.wrong_seconds) == ("cannot be looked at: MemoryError", 1.0)


class Watched:
    """A watchdog of one patient that looks often, and ends a list instead of a process."""

    def __init__(self) -> None:
        self.patient = Patient(0.2)
        self.health = ServerHealth()
        self.health.clear("starting")
        self.left: list[int] = []
        self.ended: list[int] = []
        self.dog = Watchdog([self.patient.check], self.health, self.left.append, self.ended.append)
        self.dog.start()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(watchdog, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(watchdog, "LEAVE_SECONDS", 0.0)
    made = Watched()
    yield made
    made.dog.stop()
    made.dog._thread.join()


def test_what_lasts_ends_the_process(watched: Watched) -> None:
    watched.patient.wrong = "no memory"
    wait_until(lambda: not watched.health.ready)
    wait_until(lambda: watched.ended)
    assert (watched.left, watched.ended) == ([71], [71])
    assert not watched.health.live
    assert watched.health.sickness.startswith("no memory, for ")


def test_readiness_follows_what_passes(watched: Watched) -> None:
    watched.patient.check.seconds = GENEROUS_SECONDS
    watched.patient.wrong = "no memory"
    wait_until(lambda: watched.health.obstacles == {"part": "no memory"})
    watched.patient.wrong = ""
    wait_until(lambda: watched.health.ready)
    assert watched.left == []


def test_a_verdict_from_any_thread_counts_once(watched: Watched) -> None:
    threads = [
        threading.Thread(target=watched.dog.fail, args=(f"reason {n}", 70 + n)) for n in range(2)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: watched.ended)
    for thread in threads:
        thread.join()
    assert len(watched.left) == 1
    assert watched.left == watched.ended


def test_a_process_that_has_failed_is_ended_though_it_stops(watched: Watched) -> None:
    watched.dog.fail("the device hangs", 70)
    watched.dog.stop()
    wait_until(lambda: watched.ended == [70])


def test_time_in_which_the_watchdog_did_not_run_does_not_count(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after SIGSTOP and SIGCONT: one look, however late, counts little."""
    clock = time.monotonic
    watched.patient.check.seconds = GENEROUS_SECONDS
    watched.patient.wrong = "call 1"
    wait_until(lambda: watched.patient.check.wrong_seconds > 0)
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: clock() + 1e6)
    before = watched.patient.check.wrong_seconds
    wait_until(lambda: watched.patient.check.wrong_seconds > before + 1)
    monkeypatch.undo()
    assert watched.ended == []


def test_this_process_has_memory_and_threads() -> None:
    assert (memory_short(), threads_short()) == ("", "")


def test_a_process_that_leaves_waits_for_the_line_that_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    leaving = threading.Event()

    class SlowLog:
        def error(self, event: str, **_: object) -> None:
            assert leaving.wait(GENEROUS_SECONDS)
            time.sleep(0.05)
            done.append(event)

    monkeypatch.setattr(watchdog, "log", SlowLog())
    monkeypatch.setattr(watchdog, "LOG_SECONDS", GENEROUS_SECONDS)
    monkeypatch.setattr(watchdog, "LEAVE_SECONDS", 0.0)
    dog = Watchdog([Patient().check], ServerHealth(), lambda _code: None, end=lambda _code: None)
    dog.start()
    failing = threading.Thread(target=dog.fail, args=("the device hangs", 70))
    failing.start()
    wait_until(lambda: dog._exit_code)
    leaving.set()
    dog.stop()
    done.append("left")
    failing.join()
    assert done == ["failed", "left"]


def test_where_threads_are_is_written_after_the_line_that_says_why(
    watched: Watched, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both go to stderr in pieces: written at once, they would cut each other's lines."""
    before = []

    def leave(_code: int) -> None:
        time.sleep(0.2)
        before.append(capfd.readouterr().err)

    monkeypatch.setattr(watchdog, "LOG_SECONDS", GENEROUS_SECONDS)
    watched.dog._on_failed = leave
    watched.dog.fail("the device hangs", 70)
    wait_until(lambda: watched.ended)
    assert "most recent call first" not in before[0]
    assert "most recent call first" in capfd.readouterr().err
