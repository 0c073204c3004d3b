"""Tries a device on a model: whether its arithmetic is what it says, and how fast it is.

Every number of a device is set beside the same network in float64 on the CPU, every draw beside the
CPU's. Speed is set beside the best matrix product that the device shows at the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog
import torch
from acpc.contract import (
    Brightness,
    GaussianBlur,
    GaussianNoise,
    NumericMode,
    Occlusion,
    RandomShift,
    Resize,
    VisualChange,
)
from torch import Tensor

from acpc_server.engine.accelerator import (
    computes_float64,
    computes_tf32,
    device_name,
    free_memory,
    synchronise,
    to_device,
    to_host,
)
from acpc_server.engine.device import DeviceEngine
from acpc_server.engine.graphs import capture
from acpc_server.engine.precision import arithmetic, turn_off
from acpc_server.errors import AcpcError, ResourceExhausted
from acpc_server.models import FrozenWorldModel, Widens, rollout, rollout_pool, sample_model
from acpc_server.perturb import perturb_frames
from acpc_server.scheduling import Priority, RequestContext

log = structlog.get_logger("acpc.engine")
# Largest error of a mode, relative to the largest number of the answer. Float32 that is multiplied
# in TF32 by mistake is off by some 1e-3.
TOLERANCES = {
    NumericMode.FP64: 1e-9,
    NumericMode.FP32: 1e-4,
    NumericMode.TF32: 2e-2,
    NumericMode.BF16: 1e-1,
}
SAME = 1e-5  # of a draw, in units of the normalised input, and of a graph's answer, relative
FREE_BYTES = 2**30
FRAMES, STEPS, CANDIDATES = 4, 3, 8
KINDS: tuple[VisualChange, ...] = (
    GaussianNoise(sigma=0.1), GaussianBlur(kernel_size=5), Resize(scale=0.5),
    Brightness(change=0.2), Occlusion(size=0.25), RandomShift(pixels=2),
)  # fmt: skip
OK, FAILS, TOLD = "ok", "FAILS", "-"


@dataclass(frozen=True)
class Examined:
    """One thing that was tried: what came out, what should have, and what to do about it.

    Attributes:
        what: Name of the check, stable across releases.
        measured: What came out, for people.
        expected: What should have; empty where nothing can be said.
        verdict: ``ok``, ``FAILS``, or ``-`` for what is told and not judged.
        advice: What to do; empty unless it fails.
        value: The number behind ``measured``, in SI units or relative; None where there is none.
    """

    what: str
    measured: str
    expected: str = ""
    verdict: str = TOLD
    advice: str = ""
    value: float | None = None

    @property
    def failed(self) -> bool:
        """Whether the verdict is ``FAILS``."""
        return self.verdict == FAILS


@dataclass(frozen=True)
class _Trial:
    """Inputs of one model, on the CPU in float32."""

    frames: Tensor
    histories: Tensor
    past: Tensor
    pools: Tensor

    @classmethod
    def of(cls, model: FrozenWorldModel) -> _Trial:
        card, generator = model.card, torch.Generator().manual_seed(1)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        side = card.image_size
        return cls(
            normal(FRAMES, 3, side, side),
            normal(2, card.history, card.latent_dim),
            normal(card.history - 1, card.action_block_dim),
            normal(1, CANDIDATES, STEPS, card.action_block_dim),
        )


def examine(
    engine: DeviceEngine, model: FrozenWorldModel, exact: FrozenWorldModel
) -> list[Examined]:
    """Everything that can be tried in a minute; ``exact`` is the model again, on the CPU.

    ``engine`` and ``model`` have one device, which nobody else may use meanwhile.
    """
    device = engine.device
    found = [Examined("device", device_name(device)), Examined("torch", torch.__version__)]
    found += _memory(device)
    found += examine_modes(engine, model, exact)
    found += list(_draws(device))
    found += _graph(device, model)
    return found + list(_speed(engine, model))


def examine_modes(
    engine: DeviceEngine, model: FrozenWorldModel, exact: FrozenWorldModel
) -> list[Examined]:
    """Latents, rollouts and pools in every mode of the device, against float64 on the CPU."""
    trial = _Trial.of(model)
    wanted = _in_float64(exact, trial)
    return [
        _mode(engine, model, mode, trial, wanted)
        for mode in TOLERANCES
        if _has(mode, engine.device, model)
    ]


def turn_off_failing(
    engine: DeviceEngine, make: Callable[[torch.device], FrozenWorldModel] = sample_model
) -> list[Examined]:
    """Turn off every mode at which the device fails; what failed, with the mode as ``what``.

    A mode that cannot be tried for want of memory stays on.

    ``make`` gives the model that it is tried on, and the same on the CPU.
    """
    started = time.perf_counter()
    found = examine_modes(engine, make(engine.device), make(torch.device("cpu")))
    failed = [one for one in found if one.failed]
    where = device_name(engine.device)
    for one in failed:
        why = f"on {where} it is off by {one.measured}, and may by {one.expected}"
        turn_off(NumericMode[one.what.upper()], engine.device, why)
        engine.metrics.modes_off.labels(one.what).set(1)
        log.error("numeric_mode_turned_off", mode=one.what, why=why, hint=one.advice)
    log.info("device_examined", seconds=time.perf_counter() - started, failed=len(failed))
    return failed


def _has(mode: NumericMode, device: torch.device, model: FrozenWorldModel) -> bool:
    if mode is NumericMode.FP64:
        return computes_float64(device) and isinstance(model, Widens)
    return mode is not NumericMode.TF32 or computes_tf32(device)


def _in_float64(exact: FrozenWorldModel, trial: _Trial) -> list[Tensor]:
    """The right answers; of a family without float64 its own in float32."""
    wide = exact.in_float64() if isinstance(exact, Widens) else exact
    dtype = torch.float64 if isinstance(exact, Widens) else torch.float32
    frames, histories, past, pools = (
        x.to(dtype) for x in (trial.frames, trial.histories, trial.past, trial.pools)
    )
    with torch.inference_mode():
        blocks = torch.cat([past, pools[0, 0]]).expand(len(histories), -1, -1)
        answers = wide.encode(frames), rollout(wide, histories, blocks)
        return [*answers, rollout_pool(wide, histories, past, pools)]


def _mode(
    engine: DeviceEngine,
    model: FrozenWorldModel,
    mode: NumericMode,
    trial: _Trial,
    wanted: list[Tensor],
) -> Examined:
    name, allowed, asked = str(mode), TOLERANCES[mode], (RequestContext(Priority.JOB), mode)
    advice = (
        f"do not ask for {name} on this device; look for a newer driver or torch, and for what "
        "sets the precision of products elsewhere (NVIDIA_TF32_OVERRIDE, TORCH_ALLOW_TF32_*)"
    )
    try:
        blocks = torch.cat([trial.past, trial.pools[0, 0]]).expand(len(trial.histories), -1, -1)
        found = [
            engine.encode(model, trial.frames, *asked),
            engine.rollout(model, trial.histories, blocks, *asked),
            engine.rollout_pool(model, trial.histories, trial.past, trial.pools, *asked),
        ]
    except (AcpcError, RuntimeError) as error:
        told = f"{type(error).__name__}: {error}"
        if isinstance(error, ResourceExhausted):  # of which its arithmetic is innocent
            return Examined(name, told, "an answer")
        return Examined(name, told, "an answer", FAILS, advice)
    worst = max(_apart(*pair) for pair in zip(found, wanted, strict=True))
    held = worst <= allowed  # NaN is not
    verdict = (OK, "") if held else (FAILS, advice)
    return Examined(name, f"{worst:.1e}", f"{allowed:.0e}", *verdict, worst)


def _apart(found: Tensor, wanted: Tensor) -> float:
    """Largest difference, relative to the largest number that is wanted."""
    return float(
        (found.double() - wanted.double()).abs().max() / wanted.abs().max().clamp_min(1e-30)
    )


def _memory(device: torch.device) -> list[Examined]:
    known = free_memory(device) if device.type != "cpu" else None
    if known is None:
        return []
    free, total = known
    told = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
    verdict = (OK, "") if free >= FREE_BYTES else (FAILS, "end what else computes on this device")
    return [Examined("memory", told, "1 GiB free", *verdict, float(free))]


def _draws(device: torch.device) -> Iterator[Examined]:
    side = 32
    frames = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(2))
    key = {"seed": 1, "anchor": 2, "draw": 3}
    (there,) = to_device(device, torch.float32, frames)
    for spec in KINDS:
        found = to_host(perturb_frames(there, spec, **key))
        worst = float((found - perturb_frames(frames, spec, **key)).abs().max())
        advice = "scores drawn on this device do not repeat elsewhere: report device and torch"
        verdict = (OK, "") if worst <= SAME else (FAILS, advice)
        yield Examined(f"draw {spec.kind}", f"{worst:.1e}", f"{SAME:.0e}", *verdict, worst)


def _graph(device: torch.device, model: FrozenWorldModel) -> list[Examined]:
    if device.type == "cpu":
        return []
    trial = _Trial.of(model)
    mode, advice = NumericMode.FP32, "serve without --compile-pools-after"
    with arithmetic(mode, device):
        inputs = to_device(device, torch.float32, trial.histories, trial.past, trial.pools)
        given = tuple(x.clone() for x in inputs)
        try:
            fast = capture(lambda *x: rollout_pool(model, *x), given)
            worst = _apart(to_host(fast(*given)), to_host(rollout_pool(model, *inputs)))
        except RuntimeError as error:
            return [Examined("graph", str(error).splitlines()[0], "an answer", FAILS, advice)]
    verdict = (OK, "") if worst <= SAME else (FAILS, advice)
    return [Examined("graph", f"{worst:.1e}", f"{SAME:.0e}", *verdict, worst)]


def _speed(engine: DeviceEngine, model: FrozenWorldModel) -> Iterator[Examined]:
    device = engine.device
    peak = matmul_peak(device)
    yield Examined("matmul fp32", f"{peak / 1e9:.0f} GFLOP/s", value=peak)
    trial, context = _Trial.of(model), RequestContext(Priority.INTERACTIVE)
    frames = trial.frames.repeat(16, 1, 1, 1)
    pools = trial.pools.repeat(1, 8, 1, 1).add_(torch.arange(64.0)[:, None, None] / 64)

    def encode() -> None:
        engine.encode(model, frames, context, NumericMode.FP32)

    def pool() -> None:
        engine.rollout_pool(model, trial.histories, trial.past, pools, context, NumericMode.FP32)

    rate = len(frames) / best_seconds(encode, device)
    yield Examined("encode fp32", f"{rate:.0f} frames/s", value=rate)
    rate = 1 / best_seconds(pool, device)
    yield Examined("pool 64 x 3, 2 views", f"{rate:.1f} pools/s", value=rate)
    block = torch.zeros(2**24, dtype=torch.float32)
    seconds = best_seconds(lambda: to_device(device, torch.float32, block), device)
    if device.type != "cpu":
        yield Examined(
            "copy in", f"{block.nbytes / seconds / 1e9:.1f} GB/s", value=block.nbytes / seconds
        )


def matmul_peak(device: torch.device) -> float:
    """Best rate of a float32 matrix product on this device now, FLOP/s."""
    side = 1024 if device.type == "cpu" else 8192
    with arithmetic(NumericMode.FP32, device):
        a, b = (torch.randn(side, side, device=device) for _ in range(2))
        return 2 * side**3 / best_seconds(lambda: a @ b, device)


def best_seconds(work: Callable[[], object], device: torch.device, rounds: int = 5) -> float:
    """Shortest of some rounds, after one that does not count."""
    seconds = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        work()
        synchronise(device)
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])
