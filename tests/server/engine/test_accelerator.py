"""Devices of any kind are chosen, named and asked for their memory through one file."""

import pytest
import torch
from acpc_server.engine import choose_device, device_name, report_memory
from acpc_server.engine.accelerator import pinned
from acpc_server.errors import FailedPrecondition
from acpc_server.observe import Metrics

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


def test_nothing_is_pinned_for_a_processor() -> None:
    frames = torch.zeros(2)
    assert pinned(frames, CPU) is frames
