"""A device is tried beside float64, and a mode that is off is turned off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.cli import app
from acpc_server.engine import (
    DeviceEngine,
    choose_device,
    examine_modes,
    require_mode,
    turn_off_failing,
)
from acpc_server.errors import FailedPrecondition
from acpc_server.models import FrozenJepa, check_model, sample_model
from acpc_server.observe import Metrics
from torch import Tensor
from typer.testing import CliRunner

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def engine() -> Iterator[DeviceEngine]:
    engine = DeviceEngine(CPU, Metrics())
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def modes_are_on_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acpc_server.engine.precision.TURNED_OFF", {})


class Rounding(FrozenJepa):
    """A model on a device that rounds products of float32 as TF32 does."""

    def encode(self, frames: Tensor) -> Tensor:
        latents = super().encode(frames)
        return latents * (1 + 2**-9) if latents.dtype is torch.float32 else latents


def test_the_sample_keeps_every_promise() -> None:
    model = sample_model(CPU)
    assert [one for one in check_model(model) if not one.kept] == []
    frames = torch.ones(1, 3, 28, 28)
    assert torch.equal(model.encode(frames), sample_model(CPU).encode(frames))


def test_every_mode_of_a_sound_device_holds(engine: DeviceEngine) -> None:
    model = sample_model(CPU)
    found = examine_modes(engine, model, model)
    assert [one.what for one in found] == ["fp64", "fp32", "bf16"]
    assert [one for one in found if one.failed] == []
    assert found[1].value and found[2].value and found[1].value < found[2].value


def test_a_mode_that_is_off_is_turned_off_with_words(engine: DeviceEngine) -> None:
    good = sample_model(CPU)
    bad = Rounding(good.network, good.card, CPU)
    models = iter([bad, good])
    failed = turn_off_failing(engine, lambda _: next(models))
    off = engine.metrics.registry.get_sample_value("acpc_numeric_mode_off", {"mode": "fp32"})
    assert off == 1
    assert [one.what for one in failed] == ["fp32"]
    assert "TF32" in failed[0].advice
    with pytest.raises(FailedPrecondition, match=r"fp32 .*is off by .*ask for another") as refused:
        require_mode(NumericMode.FP32, CPU, good)
    assert refused.value.reason == "NUMERIC_MODE_OFF"
    require_mode(NumericMode.FP64, CPU, good)


class Crowded(FrozenJepa):
    """A model on a device whose memory others hold."""

    def encode(self, frames: Tensor) -> Tensor:
        raise torch.OutOfMemoryError


def test_a_mode_that_memory_was_short_for_stays_on(engine: DeviceEngine) -> None:
    good = sample_model(CPU)
    models = iter([Crowded(good.network, good.card, CPU), good])
    assert turn_off_failing(engine, lambda _: next(models)) == []
    for mode in (NumericMode.FP32, NumericMode.FP64):
        require_mode(mode, CPU, good)


def test_the_command_says_what_it_found(tmp_path: Path) -> None:
    told = tmp_path / "doctor.json"
    result = CliRunner().invoke(app, ["doctor", "--device", "cpu", "--json", str(told)])
    assert result.exit_code == 0, result.output
    found = {one["what"]: one for one in json.loads(told.read_text())}
    assert {"device", "fp32", "draw gaussian_noise", "encode fp32"} <= found.keys()
    assert found["fp32"]["verdict"] == "ok"
    assert found["draw gaussian_noise"]["value"] == 0.0
    assert "fp32" in result.output


def test_the_command_fails_where_the_device_does(monkeypatch: pytest.MonkeyPatch) -> None:
    good = sample_model(CPU)
    models = iter([Rounding(good.network, good.card, CPU), good])
    monkeypatch.setattr("acpc_server.doctor_command.sample_model", lambda _: next(models))
    result = CliRunner().invoke(app, ["doctor", "--device", "cpu"])
    assert result.exit_code == 1
    assert "fp32: do not ask for fp32" in result.output


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(FailedPrecondition, match="--device xpu"):
        choose_device("xpu")
