"""Devices of any kind are chosen, named and asked for their memory through one file."""

from types import SimpleNamespace

import pytest
import torch
from acpc_server.engine import choose_device, device_name, report_memory
from acpc_server.engine.accelerator import pinned, release_cache
from acpc_server.engine.sizes import frames_per_call, pool_candidates_per_call, rollouts_per_call
from acpc_server.errors import FailedPrecondition
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority
from plain_model import PlainModel

CPU = torch.device("cpu")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A machine with some accelerators of one kind, as torch would describe it."""
    kind, count = request.param
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(kind))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("machine", "asked", "chosen"),
    [
        (("cuda", 0), "auto", "cpu"),
        (("cuda", 2), "auto", "cuda:0"),
        (("cuda", 2), "cuda", "cuda:0"),
        (("cuda", 2), "cuda:1", "cuda:1"),
        (("cuda", 2), "cpu", "cpu"),
        (("xpu", 1), "auto", "xpu:0"),
        (("mps", 1), "mps", "mps:0"),
        (("mps", 1), "auto", "cpu"),  # no float64: chosen by name only
    ],
    indirect=["machine"],
)
@pytest.mark.usefixtures("machine")
def test_a_device_is_chosen(asked: str, chosen: str) -> None:
    assert choose_device(asked) == torch.device(chosen)


@pytest.mark.parametrize(
    ("machine", "asked", "words"),
    [
        (("cuda", 0), "cuda", "finds only the CPU"),
        (("cuda", 2), "cuda:2", "finds 2 of that kind"),
        (("cuda", 1), "cuda:256", "finds 1 of that kind"),
        (("cuda", 1), "cuda:one", "finds 1 of that kind"),
        (("cuda", 1), "nonsense", "finds only cuda"),
        (("xpu", 1), "cuda", "finds only xpu"),
    ],
    indirect=["machine"],
)
@pytest.mark.usefixtures("machine")
def test_a_device_that_is_not_there_is_refused(asked: str, words: str) -> None:
    with pytest.raises(FailedPrecondition, match=f"--device {asked}, .*{words}"):
        choose_device(asked)


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_every_kind_of_device_has_sizes(kind: str) -> None:
    card = PlainModel().card
    for priority in Priority:
        there, here = (frames_per_call(x, priority, card, 224, 224) for x in (kind, "cpu"))
        assert there > here
        assert rollouts_per_call(kind, priority, card, 8) >= 8
    here, there = (pool_candidates_per_call(x, 2, card, 8) for x in ("cpu", kind))
    assert there > here


def test_memory_is_asked_of_the_kind_that_the_device_is(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied: list[str] = []
    usual = SimpleNamespace(
        memory_allocated=lambda device: 1,
        memory_reserved=lambda device: 2,
        empty_cache=lambda: emptied.append("usual"),
        get_device_name=lambda device: "Card",
    )
    apple = SimpleNamespace(
        current_allocated_memory=lambda: 5,
        driver_allocated_memory=lambda: 6,
        empty_cache=lambda: emptied.append("apple"),
    )
    modules = {"cuda": usual, "xpu": usual, "mps": apple, "cpu": torch.cpu}
    monkeypatch.setattr(torch, "get_device_module", lambda device: modules[device.type])
    for kind, held in (("xpu", (1, 2)), ("mps", (5, 6))):
        device = torch.device(kind, 0)
        report_memory(device, metrics := Metrics())
        value = metrics.registry.get_sample_value
        series = [("acpc_device_memory_bytes", {"kind": x}) for x in ("allocated", "reserved")]
        assert tuple(value(*one) for one in series) == held
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda device=device: device)
        release_cache()
    assert emptied == ["usual", "apple"]
    names = [device_name(torch.device(name)) for name in ("cuda:1", "mps:0", "cpu")]
    assert names == ["cuda:1 Card", "mps:0", "cpu"]


def test_nothing_is_pinned_for_a_processor() -> None:
    frames = torch.zeros(2)
    assert pinned(frames, CPU) is frames
    assert pinned(frames, torch.device("mps")) is frames
