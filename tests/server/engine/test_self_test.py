"""The self-test of a device: a mode that fails is refused, and the doctor says so."""

from pathlib import Path

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.cli import app
from acpc_server.engine import require_device, self_test
from acpc_server.errors import DeviceFailed, FailedPrecondition
from acpc_server.models import check_model, sample_model
from owned_device import OwnedDevice
from plain_model import PlainModel, frames
from torch.nn import functional
from typer.testing import CliRunner

CPU, FP32, BF16 = torch.device("cpu"), NumericMode.FP32, NumericMode.BF16


def replace_layer(patch: pytest.MonkeyPatch, name: str, outcome: object) -> None:
    """Have a layer of torch raise an error, or give what a function makes of its answer."""
    right = getattr(functional, name)

    def wrong(*given: object, **named: object) -> object:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome(right(*given, **named))  # type: ignore[operator]

    assert self_test(CPU) == {}, "the right answers are there"
    patch.setattr(functional, name, wrong)


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that rounds products of float32 as TF32 does."""
    rounded = lambda x: x * (1 + 2**-9) if x.dtype is torch.float32 else x  # noqa: E731
    replace_layer(monkeypatch, "linear", rounded)


def test_the_sample_keeps_every_promise() -> None:
    model = sample_model(CPU)
    assert not any(check_model(model).values())
    frames = torch.ones(1, 3, 28, 28)
    assert torch.equal(model.encode(frames), sample_model(CPU).encode(frames))


def test_every_mode_of_a_sound_device_holds_and_no_random_number_changes() -> None:
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    assert self_test(CPU) == {}
    assert torch.equal(torch.rand(1), wanted)


@pytest.mark.usefixtures("rounding")
def test_a_device_that_is_off_in_float32_is_none() -> None:
    with pytest.raises(DeviceFailed, match=r"self-test: fp32 is off by .*e-0., and may by 1e-04"):
        require_device(CPU)


def test_another_mode_that_is_off_is_refused_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """From its first use on, and every caller; others are served."""
    half_off = lambda x: x * 1.5 if x.dtype is torch.bfloat16 else x  # noqa: E731
    replace_layer(monkeypatch, "linear", half_off)
    require_device(CPU)
    device, asked = OwnedDevice(), (PlainModel(), frames(1.0))
    words = r"numeric_mode bf16 is turned off .* on cpu it is off by .*ask for another mode"
    for _ in range(2):
        with pytest.raises(FailedPrecondition, match=words) as refused:
            device.encode(*asked, mode=BF16)
        assert refused.value.reason == "NUMERIC_MODE_OFF"
    assert (device.encode(*asked) == 1).all()
    monkeypatch.undo()
    with pytest.raises(FailedPrecondition, match=words):
        device.encode(*asked, mode=BF16)
    device.engine.close()
    assert device.failures == []


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 0.0])
def test_a_device_that_gives_nonsense_fails(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    replace_layer(monkeypatch, "layer_norm", lambda x: torch.full_like(x, value))
    assert [*self_test(CPU, [FP32])] == [FP32]


def test_a_mode_that_raises_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_layer(monkeypatch, "layer_norm", RuntimeError("no kernel"))
    assert "no kernel" in self_test(CPU, [BF16])[BF16]


def test_a_mode_without_memory_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_layer(monkeypatch, "layer_norm", torch.OutOfMemoryError("full"))
    with pytest.raises(torch.OutOfMemoryError):
        self_test(CPU)
    require_device(CPU)


def doctor(*options: str) -> tuple[int, str]:
    told = CliRunner().invoke(app, ["doctor", "--device=cpu", *options])
    return told.exit_code, told.output


def test_the_doctor_finds_a_sound_machine_sound(tmp_path: Path) -> None:
    code, told = doctor(f"--checkpoint-root={tmp_path}")
    assert code == 0
    assert all(word in told for word in (torch.__version__, "all right", "readable"))


def test_the_doctor_names_a_root_that_is_not_there(tmp_path: Path) -> None:
    code, told = doctor(f"--dataset-root={tmp_path / 'nowhere'}")
    assert code == 1 and "dataset root" in told


@pytest.mark.usefixtures("rounding")
def test_the_doctor_names_a_mode_that_fails() -> None:
    code, told = doctor()
    assert code == 1 and "fp32: off by" in told
