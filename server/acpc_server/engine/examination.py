"""Tries a device on a model: beside the same network in float64, and draws, on the CPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
import torch
from acpc import contract
from torch import Tensor

from acpc_server import models
from acpc_server.engine.accelerator import (
    computes_float64,
    computes_tf32,
    device_name,
    free_memory,
    software,
    to_device,
    to_host,
)
from acpc_server.engine.arithmetic import turn_off
from acpc_server.engine.client import DeviceClient
from acpc_server.engine.device import PREPARED
from acpc_server.engine.rates import (
    FAILS,
    LOW,
    OK,
    UNTRIED,
    DeviceCheck,
    Trial,
    apart,
    examine_fast_path,
    examine_products,
    examine_rates,
)
from acpc_server.errors import AcpcError, FailedPrecondition
from acpc_server.perturb import DrawKey, Draws, perturb_frames
from acpc_server.scheduling import Priority, RequestContext

MakeModel = Callable[[torch.device], models.FrozenWorldModel]
log = structlog.get_logger("acpc.engine")
# Largest error of a mode, relative to the largest number of the answer. Float32 that is multiplied
# in TF32 by mistake is off by some 1e-3.
TOLERANCES = {
    contract.NumericMode.FP64: 1e-9,
    contract.NumericMode.FP32: 1e-4,
    contract.NumericMode.TF32: 2e-2,
    contract.NumericMode.BF16: 1e-1,
}
SAME = 1e-5  # of a draw, in units of the normalised input
FREE_BYTES = 2**30
_ELSEWHERE = "scores drawn on this device do not repeat elsewhere: report device and torch"
_PLAIN = "computed plain: scores repeat on such machines alone; report processor and torch"
# Modes at which devices of this process have failed, once tried.
_FAILED: dict[torch.device, list[DeviceCheck]] = {}
_TRYING = threading.Lock()
KINDS: tuple[contract.VisualChange, ...] = (
    contract.GaussianNoise(sigma=0.1), contract.GaussianBlur(kernel_size=5),
    contract.DefocusBlur(2.5), contract.MotionBlur(9), contract.Resize(scale=0.5),
    contract.Brightness(change=0.2), contract.Contrast(0.4), contract.ColorJitter(0.5),
    contract.Jpeg(20), contract.Gamma(exponent=2.0), contract.Shadow(strength=0.5),
    contract.Occlusion(size=0.25), contract.RandomShift(pixels=2), contract.Cutout(0.25),
    contract.Distractor(0.5), contract.Background(0.5, key="808080", tolerance=0.5),
    contract.RandomConvolution(0.5), contract.Saturation(-0.5), contract.Zoom(0.25),
    contract.KnockedCamera(5.0), contract.Haze(0.5), contract.SaltAndPepper(0.1),
    contract.Stutter(0.5),
)  # fmt: skip


def examine(
    engine: DeviceClient,
    model: models.FrozenWorldModel,
    exact: models.FrozenWorldModel,
    *,
    judged: bool,
    fast_path: bool,
) -> Iterator[DeviceCheck]:
    """Try everything; ``exact`` is the model again, on the CPU.

    ``engine`` and ``model`` have one device, which nobody else may use meanwhile. ``judged`` gives
    verdicts on rates, for a model that keeps its device busy. ``fast_path`` tries graphs too.
    """
    device = engine.device
    yield DeviceCheck("device", device_name(device))
    yield DeviceCheck("torch", torch.__version__)
    yield DeviceCheck("software", software(device))
    yield from _memory(device)
    yield from examine_modes(engine, model, exact)
    if device.type == "cpu":
        yield from _products()
        yield from examine_products()
    yield _numbers(device)
    yield from _draws(device)
    if fast_path:
        yield from examine_fast_path(device, model)
    yield from examine_rates(engine, model, exact, judged=judged)


def examine_modes(
    engine: DeviceClient, model: models.FrozenWorldModel, exact: models.FrozenWorldModel
) -> list[DeviceCheck]:
    """Try latents, rollouts and pools in every mode of the device, against float64 on the CPU.

    Raises FailedPrecondition: The model itself fails there, so that the device cannot be judged.
    """
    trial = Trial.of(model)
    wanted = _in_float64(exact, trial)
    return [
        _mode(engine, model, mode, trial, wanted)
        for mode in TOLERANCES
        if _has(mode, engine.device, model)
    ]


def turn_off_failing(
    engine: DeviceClient,
    make: Callable[[torch.device], models.FrozenWorldModel] = models.sample_model,
) -> list[DeviceCheck]:
    """Turn off every mode at which the device fails; return the failures, modes as ``what``.

    A mode fails by a wrong answer, or by none: never by being slow, and never for want of memory.
    ``make`` makes the model for a device. Findings hold for all engines of the process.
    """
    where = device_name(engine.device)
    with _TRYING:
        if (failed := _FAILED.get(engine.device)) is None:
            failed = _FAILED[engine.device] = _failing(engine, make)
    for one in failed:
        why = f"on {where} it is off by {one.measured}, and may by {one.expected}"
        turn_off(contract.NumericMode[one.what.upper()], engine.device, why)
        engine.metrics.modes_off.labels(one.what).set(1)
        log.error("numeric_mode_turned_off", mode=one.what, why=why, hint=one.advice)
    return failed


def _failing(engine: DeviceClient, make: MakeModel) -> list[DeviceCheck]:
    started = time.perf_counter()
    exact = model = make(torch.device("cpu"))
    if engine.device.type != "cpu":
        model = make(engine.device)
    found = examine_modes(engine, model, exact)
    for one in found:
        if one.verdict == UNTRIED:
            log.warning("numeric_mode_not_tried", mode=one.what, why=one.measured, hint=one.advice)
    for one in examine_products() if engine.device.type == "cpu" else ():
        if one.verdict == LOW:
            log.warning("products_slow", what=one.what, measured=one.measured, hint=one.advice)
    failed = [one for one in found if one.failed]
    log.info("device_examined", seconds=time.perf_counter() - started, failed=len(failed))
    return failed


def _has(mode: contract.NumericMode, device: torch.device, model: models.FrozenWorldModel) -> bool:
    if mode is contract.NumericMode.FP64:
        return computes_float64(device) and isinstance(model, models.Widens)
    return mode is not contract.NumericMode.TF32 or computes_tf32(device)


@contextmanager
def _blamed_on_the_model() -> Iterator[None]:
    try:
        yield
    except AcpcError:
        raise
    except Exception as error:  # whatever a plug-in family raises
        raise FailedPrecondition(
            f"the checkpoint fails on the CPU too, so it says nothing of the device: "
            f"{type(error).__name__}: {error}; repair its family or its weights"
        ) from error


def _in_float64(exact: models.FrozenWorldModel, trial: Trial) -> list[Tensor]:
    """Compute the right answers; of a family without float64 in float32."""
    wide = exact.in_float64() if isinstance(exact, models.Widens) else exact
    dtype = torch.float64 if isinstance(exact, models.Widens) else torch.float32
    frames, histories, past, pools = (
        x.to(dtype) for x in (trial.frames, trial.histories, trial.past, trial.pools)
    )
    with torch.inference_mode(), _blamed_on_the_model():
        blocks = torch.cat([past, pools[0, 0]]).expand(len(histories), -1, -1)
        answers = [wide.encode(frames), models.rollout(wide, histories, blocks)]
        answers.append(models.rollout_pool(wide, histories, past, pools))
    if not all(bool(torch.isfinite(x).all()) for x in answers):
        raise FailedPrecondition(
            "the checkpoint answers numbers that are not finite, in float64 on the CPU too, so it "
            "says nothing of the device; look for NaN or infinity in its weights"
        )
    return answers


def _mode(
    engine: DeviceClient,
    model: models.FrozenWorldModel,
    mode: contract.NumericMode,
    trial: Trial,
    wanted: list[Tensor],
) -> DeviceCheck:
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
    except AcpcError as error:  # it was not the arithmetic
        why = "see to what it says and try again"
        return DeviceCheck(name, f"{type(error).__name__}: {error}", "an answer", UNTRIED, why)
    except RuntimeError as error:
        return DeviceCheck(name, f"{type(error).__name__}: {error}", "an answer", FAILS, advice)
    worst = max(apart(*pair) for pair in zip(found, wanted, strict=True))
    held = worst <= allowed  # NaN is not
    verdict = (OK, "") if held else (FAILS, advice)
    return DeviceCheck(name, f"{worst:.1e}", f"{allowed:.0e}", *verdict, worst)


def _products() -> Iterator[DeviceCheck]:
    """Judge packed products of every shape tried so far, the model's too after its modes."""
    for mode, kind in PREPARED.items():
        what, tried, wrong = (
            f"packed {mode}",
            models.tried_products(kind),
            models.wrong_products(kind),
        )
        if not models.packs(kind) and not wrong:
            yield DeviceCheck(what, f"not used: {next(filter(None, (x.why for x in tried)))}")
            continue
        off = torch.tensor([(x.apart, x.exact) for x in tried if x.apart is not None])
        plain, exact = off.amax(0).tolist()
        errors = f"{plain:.1e}; {exact:.1e} from float64; {len(off)} shapes"
        verdict = (FAILS, f"{wrong} shapes are {_PLAIN}") if wrong else (OK, "")
        yield DeviceCheck(
            what, errors, f"{models.PACKED_TOLERANCES[kind]:.0e} from plain", *verdict, plain
        )


def _memory(device: torch.device) -> list[DeviceCheck]:
    known = free_memory(device) if device.type != "cpu" else None
    if known is None:
        return []
    free, total = known
    room = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
    verdict = (OK, "") if free >= FREE_BYTES else (FAILS, "end what else computes on this device")
    return [DeviceCheck("memory", room, "1 GiB free", *verdict, float(free))]


def _numbers(device: torch.device) -> DeviceCheck:
    """Compare normals of one key, which have the same bits everywhere."""
    there, here = (
        to_host(Draws("gaussian_noise", [DrawKey(1, 2, 3)], where).normals((1, 2**12)))
        for where in (device, torch.device("cpu"))
    )
    differ = int((there.view(torch.int32) != here.view(torch.int32)).sum())
    verdict = (OK, "") if not differ else (FAILS, _ELSEWHERE)
    return DeviceCheck("normals", f"{differ} of 4096 differ", "0 differ", *verdict, float(differ))


def _draws(device: torch.device) -> Iterator[DeviceCheck]:
    side = 32
    frames = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(2))
    key = {"seed": 1, "anchor": 2, "draw": 3}
    (there,) = to_device(device, torch.float32, frames)
    for spec in KINDS:
        found = to_host(perturb_frames(there, spec, **key))
        worst = float((found - perturb_frames(frames, spec, **key)).abs().max())
        verdict = (OK, "") if worst <= SAME else (FAILS, _ELSEWHERE)
        yield DeviceCheck(f"draw {spec.kind}", f"{worst:.1e}", f"{SAME:.0e}", *verdict, worst)
