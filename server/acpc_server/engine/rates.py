"""Findings about a device, and how fast it is: shares of the rate of a matrix product.

A low rate is reported with what to do about it. It fails nothing: a machine may be busy.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from acpc.contract import NumericMode
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from acpc_server.engine.accelerator import capture, synchronise, to_device, to_host
from acpc_server.engine.arithmetic import arithmetic
from acpc_server.engine.client import DeviceClient
from acpc_server.engine.fast_paths import TOLERANCE
from acpc_server.engine.sizes import frames_per_call
from acpc_server.models import FrozenWorldModel, Linear, rollout_pool
from acpc_server.scheduling import Priority, RequestContext

FRAMES, STEPS, CANDIDATES = 4, 3, 8
OK, FAILS, LOW, UNTRIED, SEEN = "ok", "FAILS", "low", "not tried", "-"
INTERACTIVE = RequestContext(Priority.INTERACTIVE)
# Shares of the matrix product's rate, and bytes a second, below which something is in the way.
LOW_ENCODE, LOW_POOL, LOW_COPY = 0.25, 0.05, 4e9
POOL = 64
# Two frames' tokens through the wide map of a ViT-tiny block; turns that count, and how much slower
# than the other a product is called slower.
PUBLISHED, ROWS, TURNS, SLOWER = (192, 768), 514, 9, 1.1
BUSY = "end what else computes here, look at clocks and power limits, and try again"
NARROW = "look at the card's slot (lanes, generation) and at the limit of locked memory"
DTYPES = {NumericMode.FP32: torch.float32, NumericMode.BF16: torch.bfloat16}


@dataclass(frozen=True)
class DeviceCheck:
    """Outcome of one check of a device.

    Attributes:
        what: Name of the check, stable across releases.
        measured: The outcome, for people.
        expected: The outcome of a sound device; empty where there is none to name.
        verdict: ``ok``, ``FAILS``, ``low`` for right and slow, ``not tried`` where the device had
            no room, or ``-`` for what is not judged.
        advice: What to do about it, if anything.
        value: The number behind ``measured``, in SI units or relative, if there is one.
    """

    what: str
    measured: str
    expected: str = ""
    verdict: str = SEEN
    advice: str = ""
    value: float | None = None

    @property
    def failed(self) -> bool:
        """Return whether the device gave a wrong answer, or cannot give one."""
        return self.verdict == FAILS


@dataclass(frozen=True)
class Trial:
    """Inputs of one model, on the CPU in float32."""

    frames: Tensor
    histories: Tensor
    past: Tensor
    pools: Tensor

    @classmethod
    def of(cls, model: FrozenWorldModel) -> Trial:
        """Draw the same numbers every time."""
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


def apart(found: Tensor, wanted: Tensor) -> float:
    """Largest difference, relative to the largest number that is wanted."""
    difference = (found.double() - wanted.double()).abs().max()
    return float(difference / wanted.abs().max().clamp_min(1e-30))


def examine_rates(
    engine: DeviceClient, model: FrozenWorldModel, exact: FrozenWorldModel, *, judged: bool
) -> Iterator[DeviceCheck]:
    """Time encoding and pools in float32 and bfloat16, and copies; ``exact`` is on the CPU.

    Without ``judged`` shares have no verdict: a small model cannot keep a device busy.
    """
    device, trial = engine.device, Trial.of(model)
    side = model.card.image_size
    count = frames_per_call(device.type, Priority.INTERACTIVE, model.card, side, side)
    # On the device already: copies have a line of their own.
    (frames,) = to_device(device, torch.float32, trial.frames[:1].repeat(min(count, 256), 1, 1, 1))
    pools = trial.pools[:, :1].repeat(1, POOL, 1, 1).add_(torch.arange(POOL)[:, None, None] / POOL)
    work = {"encode": len(frames) * flops(lambda: exact.encode(trial.frames[:1]))}
    work["pool"] = flops(lambda: rollout_pool(exact, trial.histories, trial.past, pools))
    for mode, dtype in DTYPES.items():
        asked = (INTERACTIVE, mode)
        calls = {
            "encode": lambda asked=asked: engine.encode(model, frames, *asked),
            "pool": lambda asked=asked: engine.rollout_pool(
                model, trial.histories, trial.past, pools, *asked
            ),
        }
        peak = matmul_peak(device, dtype)
        yield DeviceCheck(f"matmul {mode!s}", f"{peak / 1e9:.0f} GFLOP/s", value=peak)
        for name, low, per_call, unit in (
            ("encode", LOW_ENCODE, len(frames), "frames"),
            ("pool", LOW_POOL, 1, f"pools of {POOL} x {trial.pools.shape[2]}, 2 views,"),
        ):
            seconds = best_seconds(calls[name], device)
            yield DeviceCheck(
                f"{name} {mode!s}", f"{per_call / seconds:.1f} {unit} a second",
                value=per_call / seconds,
            )  # fmt: skip
            share = work[name] / seconds / peak
            yield _share(f"{name} {mode!s} of matmul", share, low, judged=judged)
    yield from _copies(device)


def examine_products() -> list[DeviceCheck]:
    """Set packed float32 against plain, and bfloat16 against the better, by processor time.

    Alternated in maps of the published encoder's size; wall time would tell how busy others are.
    """
    kinds = {"plain": torch.float32, "packed": torch.float32, "bf16": torch.bfloat16}
    with torch.random.fork_rng(devices=[]):  # nobody's random numbers change
        maps = {name: Linear(*PUBLISHED, dtype=kind) for name, kind in kinds.items()}
    for name in ("packed", "bf16"):
        maps[name].pack()
    rows = torch.linspace(-1, 1, ROWS * PUBLISHED[0]).view(ROWS, -1)
    inputs = {name: rows.to(kind) for name, kind in kinds.items()}
    spent: dict[str, list[float]] = {name: [] for name in kinds}
    with torch.inference_mode():
        for _ in range(TURNS + 1):
            for name, product in maps.items():
                started = time.process_time()
                product.gelu(inputs[name])
                spent[name].append(time.process_time() - started)
    better = min(("plain", "packed"), key=lambda name: statistics.median(spent[name][1:]))
    return [
        _against("packed fp32 against plain", spent["packed"], spent["plain"]),
        _against(f"bf16 against {better} fp32", spent["bf16"], spent[better]),
    ]


def _against(what: str, times: list[float], others: list[float]) -> DeviceCheck:
    ratios = sorted(a / max(b, 1e-9) for a, b in zip(times[1:], others[1:], strict=True))
    value = statistics.median(ratios)
    measured = f"{value:.2f} x the processor time ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    advice = "it takes longer on this processor: ask for bf16 for its rounding alone"
    verdict = (LOW, advice if what.startswith("bf16") else "") if value > SLOWER else (OK, "")
    return DeviceCheck(what, measured, f"at most {SLOWER:g} x", *verdict, value)


def _share(what: str, share: float, low: float, *, judged: bool) -> DeviceCheck:
    if not judged:
        small = "give --checkpoint: this network is too small to keep a device busy"
        return DeviceCheck(what, f"{share:.1%}", "", SEEN, small, share)
    verdict = (OK, "") if share >= low else (LOW, BUSY)
    return DeviceCheck(what, f"{share:.1%}", f"at least {low:.0%}", *verdict, share)


def _copies(device: torch.device) -> Iterator[DeviceCheck]:
    """Time 64 MiB to an accelerator and back."""
    if device.type == "cpu":
        return
    block = torch.zeros(2**24, dtype=torch.float32)
    (there,) = to_device(device, torch.float32, block)
    ways: dict[str, Callable[[], object]] = {
        "copy in": lambda: to_device(device, torch.float32, block),
        "copy out": lambda: to_host(there),
    }
    for name, work in ways.items():
        rate = block.nbytes / best_seconds(work, device)
        verdict = (OK, "") if rate >= LOW_COPY else (LOW, NARROW)
        at_least = f"at least {LOW_COPY / 1e9:.0f} GB/s"
        yield DeviceCheck(name, f"{rate / 1e9:.1f} GB/s", at_least, *verdict, rate)


def examine_fast_path(device: torch.device, model: FrozenWorldModel) -> list[DeviceCheck]:
    """Compare a pool as a captured graph of the device with the pool computed eagerly."""
    name, trial = "graph", Trial.of(model)
    advice = "serve without --graph-pools-after"
    with arithmetic(NumericMode.FP32, device):
        inputs = to_device(device, torch.float32, trial.histories, trial.past, trial.pools)
        given = tuple(x.contiguous().clone() for x in inputs)

        def eager() -> Tensor:
            return to_host(rollout_pool(model, *given))

        try:
            fast = capture(lambda *x: rollout_pool(model, *x), given)
            worst = apart(to_host(fast(*given)), eager())
        except RuntimeError as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            return [DeviceCheck(name, why, "an answer", FAILS, advice)]
        times = best_seconds(eager, device)
        times /= best_seconds(lambda: to_host(fast(*given)), device)
    verdict = (OK, "") if worst <= TOLERANCE else (FAILS, advice)
    quick = (OK, "") if times >= 1 else (LOW, advice)
    return [
        DeviceCheck(name, f"{worst:.1e}", f"{TOLERANCE:.0e}", *verdict, worst),
        DeviceCheck(f"{name} against eager", f"{times:.2f} x", "at least 1 x", *quick, times),
    ]


def matmul_peak(device: torch.device, dtype: torch.dtype) -> float:
    """Measure the best rate of a matrix product on this device now, FLOP/s."""
    side = 1024 if device.type == "cpu" else 8192
    with arithmetic(NumericMode.FP32, device):
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        return 2 * side**3 / best_seconds(lambda: a @ b, device)


@torch.inference_mode()
def flops(work: Callable[[], object]) -> int:
    """Count the floating-point operations of ``work``, attention spelled out."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def best_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Measure the shortest of five rounds, after one that does not count."""
    seconds = []
    for _ in range(6):
        started = time.perf_counter()
        work()
        synchronise(device)
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])
