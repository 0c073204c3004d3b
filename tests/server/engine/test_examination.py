"""A device is tried beside float64, and a mode that is off is turned off."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.cli import app
from acpc_server.engine import (
    DeviceClient,
    choose_device,
    examine_modes,
    require_mode,
    turn_off_failing,
)
from acpc_server.engine.examination import KINDS
from acpc_server.engine.rates import examine_fast_path, examine_products, examine_rates
from acpc_server.errors import FailedPrecondition
from acpc_server.models import FrozenJepa, check_model, packs, products, rollout_pool, sample_model
from acpc_server.observe import Metrics
from acpc_server.perturb.registry import _TABLE as REGISTERED
from torch import Tensor
from typer.testing import CliRunner

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def engine() -> Iterator[DeviceClient]:
    engine = DeviceClient(CPU, Metrics())
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def modes_are_on_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acpc_server.engine.arithmetic.TURNED_OFF", {})
    monkeypatch.setattr("acpc_server.engine.examination._FAILED", {})


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


def test_every_mode_of_a_sound_device_holds(engine: DeviceClient) -> None:
    model = sample_model(CPU)
    found = examine_modes(engine, model, model)
    assert [one.what for one in found] == ["fp64", "fp32", "bf16"]
    assert [one for one in found if one.failed] == []
    assert found[1].value and found[2].value and found[1].value < found[2].value


def test_a_mode_that_is_off_is_turned_off_with_words(engine: DeviceClient) -> None:
    good = sample_model(CPU)
    failed = turn_off_failing(engine, lambda _: Rounding(good.network, good.card, CPU))
    off = engine.metrics.registry.get_sample_value("acpc_numeric_mode_off", {"mode": "fp32"})
    assert off == 1
    assert [one.what for one in failed] == ["fp32"]
    assert "TF32" in failed[0].advice
    with pytest.raises(FailedPrecondition, match=r"fp32 .*is off by .*ask for another") as refused:
        require_mode(NumericMode.FP32, CPU, good)
    assert refused.value.reason == "NUMERIC_MODE_OFF"
    require_mode(NumericMode.FP64, CPU, good)


def test_a_device_is_tried_once_in_a_process_and_every_engine_is_told() -> None:
    good, made = sample_model(CPU), []

    def make(device: torch.device) -> FrozenJepa:
        made.append(device)
        return Rounding(good.network, good.card, device)

    for _ in range(2):
        another = DeviceClient(CPU, Metrics())
        try:
            assert [one.what for one in turn_off_failing(another, make)] == ["fp32"]
        finally:
            another.close()
        off = another.metrics.registry.get_sample_value("acpc_numeric_mode_off", {"mode": "fp32"})
        assert off == 1
    assert made == [CPU]


@pytest.mark.process
def test_wrong_packed_products_are_told_counted_and_fail_the_doctor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not packs(torch.float32):
        pytest.skip("torch has no oneDNN here")
    monkeypatch.setattr(products, "_TRIED", {})
    real = products._product

    def wrong(x: Tensor, *given: object) -> Tensor:
        return real(x, *given) * (1.001 if x.dtype is torch.float32 else 1)

    monkeypatch.setattr(products, "_product", wrong)
    file = tmp_path / "doctor.json"
    ran = CliRunner().invoke(app, ["doctor", "--device", "cpu", "--json", str(file)])
    assert ran.exit_code == 1, ran.output
    found = {one["what"]: one for one in json.loads(file.read_text())}
    assert [what for what, one in found.items() if one["verdict"] == "FAILS"] == ["packed fp32"]
    assert found["packed bf16"]["verdict"] in ("ok", "-")
    assert found["packed fp32"]["value"] == pytest.approx(1e-3, rel=0.1)
    assert "report processor" in found["packed fp32"]["advice"]
    engine, off = DeviceClient(CPU, Metrics()), "acpc_packed_products_off"
    try:
        value = engine.metrics.registry.get_sample_value
        assert [value(off, {"type": kind}) for kind in ("fp32", "bf16")] == [1, 0]
    finally:
        engine.close()


class Full(FrozenJepa):
    """A model on a device that others have filled."""

    def encode(self, frames: Tensor) -> Tensor:
        raise torch.OutOfMemoryError


class Missing(FrozenJepa):
    """A model on a device without one of its kernels."""

    def encode(self, frames: Tensor) -> Tensor:
        raise NotImplementedError("no kernel image is available")


def test_a_device_without_room_keeps_its_modes_and_one_without_kernels_does_not(
    engine: DeviceClient,
) -> None:
    good = sample_model(CPU)
    full, missing = (kind(good.network, good.card, CPU) for kind in (Full, Missing))
    tried, failed = (
        {one.what: one for one in examine_modes(engine, model, good)}["fp32"]
        for model in (full, missing)
    )
    assert (tried.verdict, tried.failed) == ("not tried", False)
    assert "out of memory" in tried.measured
    assert (failed.verdict, failed.failed) == ("FAILS", True)


class Raising(FrozenJepa):
    """A model of a plug-in family with a fault."""

    def encode(self, frames: Tensor) -> Tensor:
        raise KeyError("layer")


class NotFinite(FrozenJepa):
    """A model with weights that are not numbers."""

    def encode(self, frames: Tensor) -> Tensor:
        return super().encode(frames) * torch.nan


@pytest.mark.parametrize("kind, said", [(Raising, "KeyError: 'layer'"), (NotFinite, "not finite")])
def test_a_checkpoint_that_fails_everywhere_is_not_blamed_on_the_device(
    monkeypatch: pytest.MonkeyPatch, kind: type[FrozenJepa], said: str
) -> None:
    good = sample_model(CPU)
    faulty = kind(good.network, good.card, CPU)
    monkeypatch.setattr("acpc_server.doctor_command.sample_model", lambda _: faulty)
    result = CliRunner().invoke(app, ["doctor", "--device", "cpu"])
    assert isinstance(result.exception, FailedPrecondition)
    assert said in result.exception.message
    assert "says nothing of the device" in result.exception.message


def test_every_built_in_kind_is_drawn_beside_the_cpu() -> None:
    ours = {
        name
        for name, entry in REGISTERED.items()
        if entry.parameters.__module__.startswith("acpc.contract")
    }
    assert {spec.kind for spec in KINDS} == ours - {"identity", "given_views"}


@pytest.mark.process
def test_the_command_says_what_it_found(tmp_path: Path) -> None:
    told = tmp_path / "doctor.json"
    result = CliRunner().invoke(app, ["doctor", "--device", "cpu", "--json", str(told)])
    assert result.exit_code == 0, result.output
    found = {one["what"]: one for one in json.loads(told.read_text())}
    assert {"device", "fp32", "draw gaussian_noise", "encode fp32"} <= found.keys()
    assert found["fp32"]["verdict"] == "ok"
    assert found["packed fp32"]["verdict"] in ("ok", "-")
    assert found["draw gaussian_noise"]["value"] == found["normals"]["value"] == 0.0
    assert {"encode bf16 of matmul", "pool fp32 of matmul", "software"} <= found.keys()
    assert found["pool fp32 of matmul"]["value"] > 0
    assert "--checkpoint" in found["pool fp32 of matmul"]["advice"]
    assert "fp32" in result.output


@pytest.mark.process
def test_the_command_fails_where_the_device_does(monkeypatch: pytest.MonkeyPatch) -> None:
    good = sample_model(CPU)
    models = iter([Rounding(good.network, good.card, CPU), good])
    monkeypatch.setattr("acpc_server.doctor_command.sample_model", lambda _: next(models))
    result = CliRunner().invoke(app, ["doctor", "--device", "cpu"])
    assert result.exit_code == 1
    assert "fp32: do not ask for fp32" in result.output


@pytest.mark.parametrize("name", ["xpu", "cuda:7", "mps", "meta", "cuda:x", ""])
def test_a_device_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(FailedPrecondition, match=f"--device {name}"):
        choose_device(name)


def test_a_file_that_cannot_be_written_is_told_before_anything_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acpc_server.doctor_command.examine", lambda *_, **__: [])
    nowhere = tmp_path / "nowhere" / "doctor.json"
    for file, tried in ((nowhere, False), (Path("/dev/full"), True)):
        result = CliRunner().invoke(app, ["doctor", "--device", "cpu", "--json", str(file)])
        assert isinstance(result.exception, FailedPrecondition)
        assert f"--json {file} cannot be written" in result.exception.message
        assert ("what" in result.output) is tried


@pytest.mark.parametrize("factor, verdicts", [(1.0, "ok"), (1.001, "FAILS")])
def test_a_captured_graph_is_set_beside_what_it_stands_for(
    monkeypatch: pytest.MonkeyPatch, factor: float, verdicts: str
) -> None:
    model = sample_model(CPU)
    captured = lambda *_: lambda *inputs: rollout_pool(model, *inputs) * factor  # noqa: E731
    monkeypatch.setattr("acpc_server.engine.rates.capture", captured)
    answer, speed = examine_fast_path(CPU, model)
    assert (answer.what, answer.verdict) == ("graph", verdicts)
    assert speed.verdict in ("ok", "low")


def test_a_device_without_graphs_is_reported_with_what_to_do() -> None:
    (found,) = examine_fast_path(CPU, sample_model(CPU))
    assert found.failed and "--graph-pools-after" in found.advice


@pytest.mark.parametrize("share, verdict", [(0.5, "ok"), (0.01, "low")])
def test_a_low_share_is_told_and_fails_nothing(
    engine: DeviceClient, monkeypatch: pytest.MonkeyPatch, share: float, verdict: str
) -> None:
    model = sample_model(CPU)
    monkeypatch.setattr("acpc_server.engine.rates.flops", lambda _: 1.0)
    monkeypatch.setattr("acpc_server.engine.rates.best_seconds", lambda *_: 1.0)
    monkeypatch.setattr("acpc_server.engine.rates.matmul_peak", lambda *_: 1 / share)
    found = {one.what: one for one in examine_rates(engine, model, model, judged=True)}
    pool = found["pool fp32 of matmul"]
    assert (pool.verdict, bool(pool.advice)) == (verdict, verdict == "low")
    assert not any(one.failed for one in found.values())


def test_products_are_compared_by_processor_time() -> None:
    """Which wins is the processor's; a verdict is its ratio's, and none is a failure."""
    drawn = torch.random.get_rng_state()
    packed, reduced = examine_products()
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert packed.what == "packed fp32 against plain" and reduced.what.startswith("bf16 against ")
    for one in (packed, reduced):
        assert one.value is not None and one.value > 0
        assert one.verdict == ("low" if one.value > 1.1 else "ok") and not one.failed
