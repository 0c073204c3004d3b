"""The self-test of a device: a mode that fails is turned off, and the doctor says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.cli import app
from acpc_server.engine import require_mode, self_test, turn_off_failing
from acpc_server.errors import FailedPrecondition
from acpc_server.models import check_model, sample_model
from acpc_server.observe import Metrics
from torch.nn import functional
from typer.testing import CliRunner

CPU = torch.device("cpu")


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device that rounds products of float32 as TF32 does."""
    right = functional.linear

    def rounded(*given: torch.Tensor) -> torch.Tensor:
        product = right(*given)
        return product * (1 + 2**-9) if product.dtype is torch.float32 else product

    assert self_test(CPU) == {}, "the right answers are there"
    monkeypatch.setattr(functional, "linear", rounded)
    monkeypatch.setattr("acpc_server.engine.arithmetic.TURNED_OFF", {})
    yield


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
def test_a_mode_that_is_off_is_turned_off_with_words() -> None:
    metrics = Metrics()
    turn_off_failing(CPU, metrics)
    off = metrics.registry.get_sample_value("acpc_numeric_mode_off", {"mode": "fp32"})
    assert off == 1
    with pytest.raises(FailedPrecondition, match=r"fp32 .* off by .*ask for another") as refused:
        require_mode(NumericMode.FP32, CPU, sample_model(CPU))
    assert refused.value.reason == "NUMERIC_MODE_OFF"
    require_mode(NumericMode.FP64, CPU, sample_model(CPU))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 0.0])
def test_a_device_that_gives_nonsense_fails(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    assert self_test(CPU) == {}
    wrong = lambda x, *_, **__: torch.full_like(x, value)  # noqa: E731
    monkeypatch.setattr("torch.nn.functional.layer_norm", wrong)
    assert [*self_test(CPU, [NumericMode.FP32])] == [NumericMode.FP32]


def test_a_mode_that_raises_fails_and_one_without_memory_is_not_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(error: Exception) -> None:
        def fail(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("torch.nn.functional.layer_norm", fail)

    assert self_test(CPU) == {}
    failing(RuntimeError("no kernel"))
    assert "no kernel" in self_test(CPU, [NumericMode.BF16])[NumericMode.BF16]
    failing(torch.OutOfMemoryError("full"))
    with pytest.raises(torch.OutOfMemoryError):
        self_test(CPU)
    metrics = Metrics()
    turn_off_failing(CPU, metrics)
    off = metrics.registry.get_sample_value("acpc_numeric_mode_off", {"mode": "fp32"})
    assert off is None


def test_the_doctor_finds_a_sound_machine_sound(tmp_path: Path) -> None:
    asked = ["doctor", "--device=cpu", f"--checkpoint-root={tmp_path}"]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 0
    assert all(word in told.output for word in (torch.__version__, "all right", "readable"))


def test_the_doctor_names_a_root_that_is_not_there(tmp_path: Path) -> None:
    asked = ["doctor", "--device=cpu", f"--dataset-root={tmp_path / 'nowhere'}"]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 1
    assert "dataset root" in told.output


@pytest.mark.usefixtures("rounding")
def test_the_doctor_names_a_mode_that_fails() -> None:
    told = CliRunner().invoke(app, ["doctor", "--device=cpu"])
    assert told.exit_code == 1
    assert "fp32: off by" in told.output
