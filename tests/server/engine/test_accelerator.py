"""Devices are chosen, named and asked for their memory; calls have threads of their own."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient, choose_device, device_name, report_memory
from acpc_server.engine.accelerator import accelerator_failed, own_threads, pinned
from acpc_server.errors import FailedPrecondition
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from plain_model import CARD, PlainModel

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("gpus", "asked", "chosen"),
    [
        (0, "auto", "cpu"),
        (2, "auto", "cuda:0"),
        (2, "cuda", "cuda:0"),
        (2, "cuda:1", "cuda:1"),
        (2, "cpu", "cpu"),
        (0, "cuda", "finds only the CPU"),
        (2, "cuda:2", "finds 2 of that kind"),
        (1, "cuda:256", "finds 1 of that kind"),
        (1, "cuda:one", "finds 1 of that kind"),
        (1, "nonsense", "finds only cuda"),
    ],
)
def test_a_device_is_chosen_or_refused_with_what_there_is(
    gpus: int, asked: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    if not chosen.startswith("finds"):
        assert choose_device(asked) == torch.device(chosen)
        return
    with pytest.raises(FailedPrecondition, match=f"--device {asked}, .*{chosen}"):
        choose_device(asked)


def test_a_gpus_name_and_memory_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    device, metrics = torch.device("cuda:1"), Metrics()
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: device.index)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Card")
    report_memory(device, metrics)
    value = metrics.registry.get_sample_value
    kinds = [{"kind": kind} for kind in ("allocated", "reserved")]
    assert [value("acpc_device_memory_bytes", kind) for kind in kinds] == [1, 2]
    assert [device_name(one) for one in (device, CPU)] == ["cuda:1 Card", "cpu"]


@pytest.mark.parametrize(
    ("said", "failed"),
    [
        ("CUDA error: an illegal memory access was encountered", True),
        ("HIP error: unspecified launch failure", True),
        ("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", True),
        ("CUDA error: invalid configuration argument", False),
        ("CUDA error: operation not permitted when stream is capturing", False),
        ("CUDA error: operation failed due to a previous error during capture", False),
        ("mat1 and mat2 shapes cannot be multiplied", False),
    ],
)
def test_an_error_says_whether_the_device_has_failed(said: str, failed: bool) -> None:
    assert accelerator_failed(RuntimeError(said)) is failed


def test_nothing_is_pinned_for_a_processor() -> None:
    frames = torch.zeros(2)
    assert pinned(frames, CPU) is frames


THREADS = 3


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


def test_a_block_has_threads_of_its_own_and_gives_them_back() -> None:
    seen: list[int] = []
    with pytest.raises(ValueError, match="it"), own_threads(1):
        assert torch.get_num_threads() == 1
        other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        other.start()
        other.join()
        raise ValueError("it")
    assert torch.get_num_threads() == THREADS
    assert seen == [THREADS], "torch's own setter would have given it one"


@pytest.mark.parametrize(("parameters", "expected"), [(1, 1), (10**11, THREADS)])
def test_threads_follow_the_size_of_the_call(parameters: int, expected: int) -> None:
    seen: list[int] = []
    engine = DeviceClient(torch.device("cpu"), Metrics(), threads=THREADS)
    model = PlainModel(lambda _: seen.append(torch.get_num_threads()))
    model.card = replace(CARD, parameter_count=parameters)
    context = RequestContext(Priority.INTERACTIVE)
    engine.encode(model, torch.zeros(1, 3, 8, 8), context, NumericMode.FP32)
    engine.close()
    assert seen == [expected]
