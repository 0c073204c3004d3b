"""Devices of any kind are chosen, named and asked for their memory through one file."""

import pytest
import torch
from acpc_server.engine import choose_device, device_name, report_memory
from acpc_server.engine.accelerator import pinned
from acpc_server.engine.sizes import frames_per_call, pool_candidates_per_call, rollouts_per_call
from acpc_server.errors import FailedPrecondition
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority
from plain_model import PlainModel

CPU = torch.device("cpu")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A machine with so many GPUs, as torch would describe it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: request.param)


@pytest.mark.parametrize(
    ("machine", "asked", "chosen"),
    [
        (0, "auto", "cpu"),
        (2, "auto", "cuda:0"),
        (2, "cuda", "cuda:0"),
        (2, "cuda:1", "cuda:1"),
        (2, "cpu", "cpu"),
    ],
    indirect=["machine"],
)
@pytest.mark.usefixtures("machine")
def test_a_device_is_chosen(asked: str, chosen: str) -> None:
    assert choose_device(asked) == torch.device(chosen)


@pytest.mark.parametrize(
    ("machine", "asked", "words"),
    [
        (0, "cuda", "finds only the CPU"),
        (2, "cuda:2", "finds 2 of that kind"),
        (1, "cuda:256", "finds 1 of that kind"),
        (1, "cuda:one", "finds 1 of that kind"),
        (1, "nonsense", "finds only cuda"),
    ],
    indirect=["machine"],
)
@pytest.mark.usefixtures("machine")
def test_a_device_that_is_not_there_is_refused(asked: str, words: str) -> None:
    with pytest.raises(FailedPrecondition, match=f"--device {asked}, .*{words}"):
        choose_device(asked)


def test_a_gpu_takes_more_than_a_processor() -> None:
    card, kind = PlainModel().card, "cuda"
    for priority in Priority:
        there, here = (frames_per_call(x, priority, card, 224, 224) for x in (kind, "cpu"))
        assert there > here
        assert rollouts_per_call(kind, priority, card, 8) >= 8
    here, there = (pool_candidates_per_call(x, 2, card, 8) for x in ("cpu", kind))
    assert there > here


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


def test_nothing_is_pinned_for_a_processor() -> None:
    frames = torch.zeros(2)
    assert pinned(frames, CPU) is frames
