"""What the server asks of a device: a kind of accelerator that torch finds (CUDA, XPU, MPS), a CPU.

All that differs between kinds, or between releases of torch, is here, graphs included: a captured
computation is one launch instead of hundreds.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from resource import getpagesize
from typing import Any

import torch
from torch import Tensor

from acpc_server.errors import FailedPrecondition
from acpc_server.observe import Metrics

# Apple's GPUs compute in no float64, and share the memory of their host.
_NO_FLOAT64 = _NO_PINNING = frozenset({"mps"})
_TF32 = frozenset({"cuda"})
_GRAPHS = {"cuda": "CUDAGraph", "xpu": "XPUGraph"}
# Errors of torch after which every further call of the process fails too.
_ACCELERATOR = re.compile(
    r"\b(CUDA|HIP|SYCL|MPS|Level.?Zero)( (driver|backend))? error|cuDNN error"
    r"|CUDNN_STATUS|CUBLAS_STATUS|CUSOLVER_STATUS",
    re.IGNORECASE,
)
# A call that asked for the impossible leaves the accelerator as it was.
_HARMLESS = re.compile(r"invalid (configuration )?argument|not supported|out of memory", re.I)
_STATUS = Path("/proc/self/statm")
# Of OpenMP and, where torch has it, of MKL.
_SETTERS = ("omp_set_num_threads", "MKL_Set_Num_Threads_Local")
WARM_UP = 3
LARGE = 2**20
"""Bytes of an answer that is copied into page-locked memory."""
Compute = Callable[..., Tensor]
"""Tensors of fixed shapes to one tensor."""


def choose_device(name: str) -> torch.device:
    """Choose a device by name: a kind of accelerator, one of its devices, or ``auto``.

    ``auto`` is this machine's accelerator, if it can measure rounding in float64, and else the CPU.

    Raises FailedPrecondition: There is no such device; the message names what there is.
    """
    found = _accelerator()
    if name == "auto":
        chosen = found is not None and computes_float64(found)
        name = found.type if chosen and found is not None else "cpu"
    # Torch takes cuda:256 for cuda:0.
    kind, colon, number = name.partition(":")
    if kind == "cpu":
        return torch.device("cpu")
    count = torch.accelerator.device_count() if found and found.type == kind else 0
    if (colon and not number.isdecimal()) or int(number or 0) >= count:
        have = f"{count} of that kind" if count else f"only {found.type if found else 'the CPU'}"
        raise FailedPrecondition(f"--device {name}, but torch {torch.__version__} finds {have}")
    return torch.device(kind, int(number or 0))


def device_name(device: torch.device) -> str:
    """Name a device for an operator, for example ``"cuda:0 NVIDIA H200"``."""
    named = getattr(_module(device), "get_device_name", None)
    return f"{device} {named(device)}" if named else str(device)


def software(device: torch.device) -> str:
    """Name the releases of runtime and driver, or a CPU's instructions and threads."""
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"{torch.backends.cpu.get_cpu_capability()}, {threads} threads"
    runtimes = [f"{name} {found}" for name in ("cuda", "hip", "xpu")
                if (found := getattr(torch.version, name, None))]  # fmt: skip
    driver = _nvidia_driver() if device.type == "cuda" and torch.version.cuda else None
    if device.type == "xpu":
        driver = _module(device).get_device_properties(device).driver_version
    return ", ".join([*runtimes, f"driver {driver or 'unknown'}"])


def _nvidia_driver() -> str | None:
    """Ask nvidia-smi; torch does not know."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip().partition("\n")[0] or None


def computes_float64(device: torch.device) -> bool:
    """Return whether the device has float64."""
    return device.type not in _NO_FLOAT64


def computes_tf32(device: torch.device) -> bool:
    """Return whether the device can multiply float32 in TF32."""
    return device.type in _TF32


def has_graphs(device: torch.device) -> bool:
    """Return whether the device can capture a computation as a graph."""
    name = _GRAPHS.get(device.type)
    return name is not None and hasattr(_module(device), name)


def report_memory(device: torch.device, metrics: Metrics) -> None:
    """Have every scrape read the memory that is held: a GPU's, or on a CPU this process's."""
    gauge = metrics.device_memory
    if device.type != "cpu":
        for name in ("allocated", "reserved"):
            gauge.labels(name).set_function(partial(_held_memory, device, name))
    elif _STATUS.exists():
        gauge.labels("resident").set_function(
            lambda: int(_STATUS.read_text().split()[1]) * getpagesize()
        )


def _held_memory(device: torch.device, what: str) -> int:
    """Bytes of an accelerator that are ``allocated`` to tensors, or ``reserved`` for them."""
    module, own = _module(device), device.type != "mps"
    names = {
        "allocated": ("current_allocated_memory", "memory_allocated"),
        "reserved": ("driver_allocated_memory", "memory_reserved"),
    }
    held: int = getattr(module, names[what][own])(*[device] * own)
    return held


@contextmanager
def own_threads(count: int) -> Iterator[None]:
    """Run the block on so many threads, and then on as many as before."""
    before = torch.get_num_threads()
    # Torch's own function sets the count of new threads too.
    setters = _setters() if before != count else []
    for setter in setters:
        setter(count)
    try:
        yield
    finally:
        for setter in setters:
            setter(before)


@cache
def _setters() -> list[Callable[[int], object]]:
    """Find the libraries' functions; none where torch is built in another way."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    except OSError:
        return []
    return [getattr(library, name) for name in _SETTERS if hasattr(library, name)]


def accelerator_failed(error: BaseException) -> bool:
    """Return whether an error says that the accelerator itself has failed."""
    text = str(error)
    return _ACCELERATOR.search(text) is not None and _HARMLESS.search(text) is None


def release_cache() -> None:
    """Give the accelerator's memory that no tensor holds back to the driver, if there is one."""
    if (device := _accelerator()) is not None:
        _module(device).empty_cache()


def synchronise(device: torch.device) -> None:
    """Wait until an accelerator has finished its work."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy into page-locked memory, from which a device copies without the processor's help."""
    if device.type in ("cpu", *_NO_PINNING) or tensor.device.type != "cpu" or tensor.is_pinned():
        return tensor
    return tensor.contiguous().pin_memory()  # torch pins no tensor that was expanded


def to_device(device: torch.device, dtype: torch.dtype, *tensors: Tensor) -> list[Tensor]:
    """Copy tensors to the device, all in one copy, and convert them to ``dtype`` there.

    A copy that converts would do so on the host first, in memory that is not pinned, and wait.
    """
    if device.type == "cpu":
        return [x.to(dtype) for x in tensors]
    if len(tensors) == 1:
        return [pinned(x, device).to(device, non_blocking=True).to(dtype) for x in tensors]
    flat = pinned(torch.cat([x.flatten() for x in tensors]), device)
    there = flat.to(device, non_blocking=True).to(dtype)
    parts = torch.split(there, [x.numel() for x in tensors])
    return [part.view(x.shape) for part, x in zip(parts, tensors, strict=True)]


def to_host(tensor: Tensor) -> Tensor:
    """Copy a tensor to the CPU; nothing else waits for a device.

    A large one comes into page-locked memory: new pages of the host take longer than the copy.
    """
    if tensor.device.type in ("cpu", *_NO_PINNING) or tensor.nbytes < LARGE:
        return tensor.cpu()
    there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return there.copy_(tensor)


class DeviceGraphs:
    """Captures on streams of CUDA, and of XPU where torch has graphs for it.

    Raises RuntimeError: The device has no graphs.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module: Any = torch.get_device_module(device)
        self._make: Any = getattr(self._module, _GRAPHS.get(device.type, ""), None)
        if self._make is None:
            raise RuntimeError(f"torch {torch.__version__} has no graphs of {device.type}")

    def aside(self, work: Callable[[], object]) -> None:
        """Do ``work`` on a stream of its own, after what was begun and before what follows."""
        current = torch.accelerator.current_stream(self._device)
        side = self._module.Stream(device=self._device)
        side.wait_stream(current)
        with self._module.stream(side):
            work()
        current.wait_stream(side)

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """Return what replays ``work`` on the memory that it used, and its answer's tensor.

        Raises RuntimeError: ``work`` cannot be captured.
        """
        graph = self._make()
        with self._module.graph(graph):
            out = work()
        return graph.replay, out


def capture(
    compute: Compute, inputs: tuple[Tensor, ...], device: DeviceGraphs | None = None
) -> Compute:
    """Capture ``compute`` for inputs of these very shapes; each answer is a copy of its own.

    Raises RuntimeError: The computation cannot be captured.
    """
    device = device or DeviceGraphs(inputs[0].device)
    held = [x.clone() for x in inputs]

    def warm_up() -> None:
        for _ in range(WARM_UP):
            compute(*held)

    # A cast that autocast cached before the capture would not be part of the graph.
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        device.aside(warm_up)
        replay, out = device.record(lambda: compute(*held))
    finally:
        torch.set_autocast_cache_enabled(True)

    def replayed(*tensors: Tensor) -> Tensor:
        for buffer, tensor in zip(held, tensors, strict=True):
            buffer.copy_(tensor)
        replay()
        return out.clone()

    # The graph reads the weights where they lie, so they must stay when the checkpoint is unloaded.
    replayed.compute = compute  # type: ignore[attr-defined]
    return replayed


def _accelerator() -> torch.device | None:
    there = torch.accelerator.is_available()
    return torch.accelerator.current_accelerator() if there else None


def _module(device: torch.device) -> Any:  # noqa: ANN401
    """Return torch.cuda, torch.xpu and so on: ``torch.accelerator`` lacks memory in 2.6."""
    return torch.get_device_module(device)
