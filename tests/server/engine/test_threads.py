"""Threads of device calls, whose count is nobody else's, and the memory that a process keeps."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import processes
import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient, host
from acpc_server.engine.host import THREADED_WORK, HalfCalls, Waits, by_work
from acpc_server.models import load_checkpoint, rollout
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext, pause
from torch import Tensor
from waiting import GENEROUS_SECONDS, wait_until

THREADS = 3
ROW = torch.zeros(1, 1)
CHECKPOINTS = Path(__file__).parents[3] / "examples/two_room/checkpoints"
# Threads that are not Python's, beyond those of the imports, once a device has computed.
DEVICE = f"""
import os
import sys
import threading
from pathlib import Path
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient, host
from acpc_server.models import load_checkpoint
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext


def native():
    return len(os.listdir("/proc/self/task")) - threading.active_count()


torch.set_num_threads({THREADS})
host.THREADED_WORK = 0  # the demo's network is small
host.Waits.choose = lambda self, spin: None
before, cpu = native(), torch.device("cpu")
engine = DeviceClient(cpu, Metrics(), threads={THREADS})
torch.set_num_threads(1)  # as the server does
model = load_checkpoint(Path(sys.argv[1]), "two-room-base", device=cpu)
frames, context = torch.rand(256, 3, 32, 32), RequestContext(Priority.JOB)
engine.encode(model, frames, context, NumericMode.FP32)
print(native() - before)
"""


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """This thread has several, and gives them back."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


def counted(rows: Tensor) -> Tensor:
    """The thread's count, for each row."""
    return torch.full((len(rows),), torch.get_num_threads())


@pytest.mark.parametrize(
    ("work", "rows", "expected"),
    [(THREADED_WORK, 1, THREADS), (THREADED_WORK / 2, 1, 1), (THREADED_WORK / 2, 2, THREADS)],
)
def test_threads_follow_the_size_of_the_call(work: float, rows: int, expected: int) -> None:
    assert by_work(work, counted)(torch.zeros(rows, 1)).tolist() == [expected] * rows
    assert torch.get_num_threads() == THREADS


def test_a_call_that_fails_gives_its_threads_back() -> None:
    def fail(rows: Tensor) -> Tensor:
        raise ValueError(rows)

    with pytest.raises(ValueError, match="tensor"):
        by_work(0.0, fail)(ROW)
    assert torch.get_num_threads() == THREADS


def test_a_thread_that_starts_meanwhile_keeps_the_default() -> None:
    seen: list[int] = []

    def start_another(rows: Tensor) -> Tensor:
        other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        other.start()
        other.join()
        return rows

    by_work(0.0, start_another)(ROW)
    assert seen == [THREADS], "torch's own setter would have given it one"


@pytest.mark.process
def test_a_device_has_the_only_team_of_threads() -> None:
    """With a second team, OpenMP has threads that wait in either sleep at once, whatever is set."""
    code = [sys.executable, "-c", DEVICE, CHECKPOINTS]
    *_, last = processes.run(code, imported="acpc-server").stdout.splitlines()
    assert last == f"{THREADS - 1}"  # before it the log, for example of products not packed


@pytest.fixture
def halves() -> Iterator[HalfCalls]:
    """On two threads, as of a device on two cores."""
    torch.set_num_threads(host.THREADS)
    with closing(HalfCalls()) as calls:
        yield calls


def who(rows: Tensor) -> Tensor:
    """Of each row: itself, the thread that has it, that thread's count, and whether in bfloat16."""
    bf16 = torch.is_autocast_enabled("cpu")
    about = [threading.get_ident(), torch.get_num_threads(), bf16]
    return torch.cat([rows, torch.tensor([about]).expand(len(rows), -1)], dim=1)


@pytest.mark.parametrize("bf16", [False, True])
def test_a_call_in_halves_has_its_rows_in_order_each_half_on_one_thread(
    halves: HalfCalls, bf16: bool
) -> None:
    rows = torch.arange(5)[:, None]
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        found = halves.compute(who, rows)
    assert found[:, 0].tolist() == [0, 1, 2, 3, 4]
    first, later = found[:3, 1].unique().tolist(), found[3:, 1].unique().tolist()
    assert first == [threading.get_ident()]
    assert len(later) == 1
    assert later != first
    assert found[:, 2:].tolist() == [[1, bf16]] * 5
    assert torch.get_num_threads() == host.THREADS


@pytest.mark.parametrize(("rows", "threads"), [(1, 2), (8, 1), (8, 3)])
def test_one_row_and_other_numbers_of_threads_are_computed_whole(
    halves: HalfCalls, rows: int, threads: int
) -> None:
    torch.set_num_threads(threads)
    found = halves.compute(who, torch.zeros(rows, 1, dtype=torch.int64))
    assert found[:, 1:3].tolist() == [[threading.get_ident(), threads]] * rows


@pytest.mark.parametrize(("fewest", "threads"), [(5, 1), (4, 2)])
def test_fewer_rows_than_asked_for_are_computed_whole(
    halves: HalfCalls, fewest: int, threads: int
) -> None:
    ones = torch.ones(4, 1, dtype=torch.int64)
    found = halves.compute(lambda x, y: who(x + y), ones, ones, fewest=fewest)
    assert found[:, 0].tolist() == [2] * 4
    assert len(found[:, 1].unique()) == threads


@pytest.mark.parametrize("mode", [NumericMode.FP32, NumericMode.FP64])
@pytest.mark.parametrize(("rows", "threads"), [(47, 1), (48, 2)])
def test_large_rollouts_and_pools_are_cut_and_keep_their_rows(
    monkeypatch: pytest.MonkeyPatch, mode: NumericMode, rows: int, threads: int
) -> None:
    monkeypatch.setattr(host, "THREADED_WORK", 0)  # the demo's network is small
    model = load_checkpoint(CHECKPOINTS, "two-room-base", device=torch.device("cpu"))
    used = set[int]()
    step = type(model).unroll
    monkeypatch.setattr(
        type(model), "unroll", lambda *given: used.add(threading.get_ident()) or step(*given)
    )
    card, exact = model.card, model.in_float64()
    histories = torch.randn(rows, 1, card.latent_dim)
    blocks = torch.randn(rows, 4, card.action_block_dim)
    start, past = histories[:1], blocks[0, :0]
    asked = RequestContext(Priority.JOB), mode
    with closing(DeviceClient(torch.device("cpu"), Metrics(), threads=host.THREADS)) as engine:
        rolled = engine.rollout(model, histories, blocks, *asked)
        assert len(used) == threads
        used.clear()
        pooled = engine.rollout_pool(model, start, past, blocks[None], *asked)
        assert len(used) == threads
    for found, inputs in ((rolled, histories), (pooled[0], start.expand_as(histories))):
        wanted = rollout(exact, inputs.double(), blocks.double())
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)


def test_the_second_thread_waits_while_others_have_the_cores(halves: HalfCalls) -> None:
    held, passed = threading.Event(), threading.Event()

    def work(rows: Tensor) -> Tensor:
        if int(rows[0]) == 0:
            with halves.held():
                held.set()
                assert not passed.wait(0.2)
                between = halves.compute(who, rows)
                assert between[:, 1].unique().tolist() == [threading.get_ident()]
            assert passed.wait(GENEROUS_SECONDS)
        else:
            assert held.wait(GENEROUS_SECONDS)
            pause()
            passed.set()
        return rows

    rows = torch.arange(4)[:, None]
    assert torch.equal(halves.compute(work, rows), rows)


@pytest.mark.parametrize("failing", [0, 2])
def test_an_error_of_either_half_is_raised_once_both_have_ended(
    halves: HalfCalls, failing: int
) -> None:
    ended: list[int] = []

    def work(rows: Tensor) -> Tensor:
        if int(rows[0]) == failing:
            raise ValueError("one half")
        ended.append(int(rows[0]))
        return rows

    with pytest.raises(ValueError, match="one half"):
        halves.compute(work, torch.arange(4)[:, None])
    assert ended == [2 - failing]
    assert torch.get_num_threads() == host.THREADS


def idle_teams() -> set[threading.Thread]:
    """Teams that only make OpenMP's threads more than the cores; an ident may come again."""
    return {each for each in threading.enumerate() if each.name == "idle team"}


def test_threads_spin_while_cores_are_free_and_sleep_at_once_beside_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every share of time in line is below 2 and above -1."""
    monkeypatch.setattr(host, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))
    before = idle_teams()
    with closing(Waits(2)) as waiting:
        assert not waiting.spins, "until it is known whether others use the cores"
        for bound, spins in ((2.0, True), (-1.0, False), (2.0, True), (-1.0, False)):
            monkeypatch.setattr(host, "ALONE", bound)
            monkeypatch.setattr(host, "CROWDED", bound)
            for _ in range(3):
                waiting.look()
                assert waiting.spins is spins
            wait_until(lambda spins=spins: len(idle_teams() - before) == (not spins))
    wait_until(lambda: not idle_teams() - before)


def test_a_share_between_the_two_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(host, "ALONE", -1.0)
    monkeypatch.setattr(host, "CROWDED", 2.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))
    with closing(Waits(2)) as waiting:
        for spin in (True, False):
            waiting.choose(spin=spin)
            waiting.look()
            assert waiting.spins is spin


def test_one_thread_waits_for_none() -> None:
    assert Waits(1).spins
