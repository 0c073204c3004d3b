"""What the server asks of a device: a GPU of CUDA, which is also ROCm's name in torch, or a CPU.

All that differs between them is here, graphs included: a captured computation is one launch instead
of hundreds.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from resource import getpagesize

import torch
from torch import Tensor

from acpc_server.errors import FailedPrecondition
from acpc_server.models import captured_form
from acpc_server.observe import Metrics

# Errors of torch after which every further call of the process fails too.
_FAILED = re.compile(
    r"\b(CUDA|HIP)( driver)? error|cuDNN error|CUDNN_STATUS|CUBLAS_STATUS|CUSOLVER_STATUS", re.I
)
# A call that asked for the impossible leaves the accelerator as it was, and so does a capture.
_HARMLESS = re.compile(
    r"invalid (configuration )?argument|not supported|out of memory|captur", re.I
)
_STATUS = Path("/proc/self/statm")
# Of OpenMP and, where torch has it, of MKL.
_SETTERS = ("omp_set_num_threads", "MKL_Set_Num_Threads_Local")
WARM_UP = 1
LARGE = 2**20
"""Bytes of an answer that is copied into page-locked memory."""
Compute = Callable[..., Tensor]
"""Tensors of fixed shapes to one tensor."""


def choose_device(name: str) -> torch.device:
    """Choose a device by name: ``cpu``, ``cuda`` or one of its devices, or ``auto``.

    ``auto`` is this machine's GPU, and else the CPU.

    Raises FailedPrecondition: There is no such device; the message names what there is.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    # Torch takes cuda:256 for cuda:0.
    kind, colon, number = (("cuda" if count else "cpu") if name == "auto" else name).partition(":")
    if kind == "cpu":
        return torch.device("cpu")
    own = count if kind == "cuda" else 0
    if (colon and not number.isdecimal()) or int(number or 0) >= own:
        have = f"{own} of that kind" if own else f"only {'cuda' if count else 'the CPU'}"
        raise FailedPrecondition(f"--device {name}, but torch {torch.__version__} finds {have}")
    return torch.device(kind, int(number or 0))


def device_name(device: torch.device) -> str:
    """Name a device for an operator, for example ``"cuda:0 NVIDIA H200"``."""
    return str(device) if device.type == "cpu" else f"{device} {torch.cuda.get_device_name(device)}"


def software(device: torch.device) -> str:
    """Name the releases of runtime and driver, or a CPU's instructions and threads."""
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"{torch.backends.cpu.get_cpu_capability()}, {threads} threads"
    driver = "unknown"
    if torch.version.cuda:  # torch does not know its driver
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            answer = subprocess.run(  # noqa: S603
                command, capture_output=True, text=True, check=True, timeout=30
            )
            driver = answer.stdout.strip().partition("\n")[0] or driver
        except (OSError, subprocess.SubprocessError):
            pass
    runtime = f"cuda {torch.version.cuda}" if torch.version.cuda else f"hip {torch.version.hip}"
    return f"{runtime}, driver {driver}"


def report_memory(device: torch.device, metrics: Metrics) -> None:
    """Have every scrape read the memory that is held: a GPU's, or on a CPU this process's."""
    gauge = metrics.device_memory
    if device.type != "cpu":
        gauge.labels("allocated").set_function(lambda: torch.cuda.memory_allocated(device))
        gauge.labels("reserved").set_function(lambda: torch.cuda.memory_reserved(device))
    elif _STATUS.exists():
        gauge.labels("resident").set_function(
            lambda: int(_STATUS.read_text().split()[1]) * getpagesize()
        )


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
    return _FAILED.search(text) is not None and _HARMLESS.search(text) is None


def release_cache() -> None:
    """Give a GPU's memory that no tensor holds back to the driver, if there is one."""
    torch.cuda.empty_cache()


def pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy into page-locked memory, from which a device copies without the processor's help."""
    if device.type == "cpu" or tensor.device.type != "cpu" or tensor.is_pinned():
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
    if tensor.device.type == "cpu" or tensor.nbytes < LARGE:
        return tensor.cpu()
    there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return there.copy_(tensor)


class DeviceGraphs:
    """Captures on streams of a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def aside(self, work: Callable[[], object]) -> None:
        """Do ``work`` on a stream of its own, after what was begun and before what follows."""
        current = torch.cuda.current_stream(self._device)
        side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        side.wait_stream(current)
        with torch.cuda.stream(side):
            work()
        current.wait_stream(side)

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """Return what replays ``work`` on the memory that it used, and its answer's tensor.

        Raises RuntimeError: ``work`` cannot be captured.
        """
        graph, before = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        # Its stream is made on the current device. Other threads, which draw and pin, go on.
        mode = "thread_local"
        try:
            with torch.cuda.device(self._device), torch.cuda.graph(graph, capture_error_mode=mode):
                out = work()
        finally:  # torch goes on with the graph's, beside what others draw, where a capture fails
            torch.cuda.set_stream(before)
        return graph.replay, out


def capture(
    compute: Compute,
    inputs: tuple[Tensor, ...],
    exact: bool = False,
    device: DeviceGraphs | None = None,
) -> Compute:
    """Capture ``compute`` for inputs of these very shapes; each answer is a copy of its own.

    With ``exact`` in the form that it has elsewhere, and so with the same bits.
    Raises RuntimeError: The computation cannot be captured.
    """
    device = device or DeviceGraphs(inputs[0].device)
    held = [x.clone() for x in inputs]
    # A cast that autocast cached before the capture would not be part of the graph.
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        with nullcontext() if exact else captured_form():
            device.aside(lambda: [compute(*held) for _ in range(WARM_UP)])
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
