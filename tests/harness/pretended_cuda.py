"""A CUDA device that is not there: shapes, types and devices of real code, without its arithmetic.

``FakeTensorMode`` gives every tensor a device and computes shapes alone. Three things of a build
without CUDA stand in the way, and are put aside for as long as the device is pretended: indexing
asks for a device guard, ``module.to`` swaps parameters in place, and autocast turns itself off.

``Watch`` lies on top. It fails on what a real device does silently and slowly: an answer that the
host waits for, a tensor of the host among those of the device, and copies beside the two functions
through which tensors come and go.
"""

import copy
import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import torch
from acpc_server.models.frozen import FrozenNetwork
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CUDA = torch.device("cuda:0")
Model = TypeVar("Model", bound=FrozenNetwork[Any])
WAY_IN, WAY_OUT = "to_device", "to_host"  # of engine/accelerator.py
_SERVER = "acpc_server"
_aten = torch.ops.aten
# The host has to wait for what these find out.
_ANSWERS = {
    _aten._local_scalar_dense, _aten.is_nonzero, _aten.equal, _aten.nonzero, _aten.masked_select,
    _aten._unique2, _aten.unique_dim, _aten.unique_consecutive, _aten.bincount,
}  # fmt: skip
_CUDA_TYPE, _META_TYPE = 1, 14  # of c10::DeviceType


class HiddenSynchronisation(AssertionError):
    """The host would wait for the device where nobody expects it."""


class MixedDevices(AssertionError):
    """A tensor of the host among those of the device."""


@dataclass
class Watch(TorchDispatchMode):
    """Counts copies between host and device, and fails on what a device does silently.

    Attributes:
        copies_in: Bytes of each copy to the device.
        copies_out: Bytes of each copy from it.
        waiting: Copies to the device from memory that is not pinned, by place.
        operations: What ran on the device, as name and type of the answer.
        writing: How many of these wrote memory: a kernel at least, where a view takes none.
    """

    copies_in: list[int] = field(default_factory=list)
    copies_out: list[int] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    operations: Counter[tuple[str, torch.dtype]] = field(default_factory=Counter)
    writing: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        self._pinned: list[Tensor] = []  # held, so that no storage takes another's place

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> object:  # noqa: ANN001
        kwargs = kwargs or {}
        operation = func.overloadpacket
        if operation in (_aten._pin_memory, _aten.pin_memory):
            if any(
                n > 1 and not step for n, step in zip(args[0].shape, args[0].stride(), strict=True)
            ):
                raise RuntimeError("torch cannot pin a tensor that was expanded")
            self._pinned.append(args[0].clone())
            return self._pinned[-1]
        if operation is _aten.is_pinned:
            return self._is_pinned(args[0])
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        there = [x for x in given if x.is_cuda]
        if operation is _aten.copy_ and len({x.device.type for x in given}) == 2:
            self._copied(args[1], args[0], bool(args[2:] and args[2]))
        elif there:
            self._check(operation, given, args)
        elif operation is _aten._local_scalar_dense and args[0].dtype is torch.bool:
            return True  # what the host asks of an answer that it has: is it finite?
        out = func(*args, **kwargs)
        if operation in (_aten._to_copy, _aten.to) and out.device != args[0].device:
            self._copied(args[0], out, kwargs.get("non_blocking", False))
        first = next((x for x in tree_leaves(out) if isinstance(x, Tensor)), None)
        if first is not None and first.is_cuda:
            self.operations[str(operation).removeprefix("aten."), first.dtype] += 1
            views = any(_storage(x) == _storage(first) for x in there)
            self.writing += func._schema.is_mutable or not views
        return out

    def _check(self, operation: object, given: list[Tensor], args: tuple[Any, ...]) -> None:
        masks = []
        if operation in (_aten.index, _aten.index_put, _aten.index_put_):
            masks = [x for x in args[1] if x is not None and x.dtype in (torch.bool, torch.uint8)]
        filled = operation in (_aten.index_put, _aten.index_put_) and args[2].numel() == 1
        if operation in _ANSWERS or (masks and not filled):
            raise HiddenSynchronisation(f"{operation} waits for the device, {_place()}")
        strangers = [x for x in given if not x.is_cuda and x.ndim]
        if strangers and operation not in (_aten._to_copy, _aten.to):
            shape = tuple(strangers[0].shape)
            raise MixedDevices(f"{operation} takes a host tensor {shape}, {_place()}")

    def _copied(self, source: Tensor, target: Tensor, non_blocking: bool) -> None:
        if target.is_meta:  # a shape: torch's forward derivatives ask for one
            return
        way = WAY_IN if target.is_cuda else WAY_OUT
        if not any(name == way and path.name == "accelerator.py" for path, name, _ in _frames()):
            raise HiddenSynchronisation(f"a copy beside {way}(), {_place()}")
        size = source.numel() * source.element_size()
        (self.copies_in if target.is_cuda else self.copies_out).append(size)
        if target.is_cuda and not (non_blocking and self._is_pinned(source)):
            self.waiting.append(_place())

    def _is_pinned(self, tensor: Tensor) -> bool:
        return any(_storage(x) == _storage(tensor) for x in self._pinned)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _frames() -> Iterator[tuple[Path, str, int]]:
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        yield Path(code.co_filename), code.co_name, frame.f_lineno
        frame = frame.f_back


def _place() -> str:
    """The innermost line of the server, or of its test, that asked."""
    harness = Path(__file__)
    for path, name, line in _frames():
        if path != harness and (_SERVER in path.parts or path.name.startswith("test_")):
            return f"{path.name}:{line} in {name}"
    return "nowhere"


@contextmanager
def _guard() -> Iterator[None]:
    """Gives CUDA the device guard of the meta device, which does nothing."""
    folder = Path(torch.__file__).parent / "lib"
    library = ctypes.CDLL(str(next(folder.glob("libc10.*"))))
    symbol = "_ZN3c104impl26device_guard_impl_registryE"
    guards = (ctypes.c_void_p * (_META_TYPE + 1)).in_dll(library, symbol)
    before = guards[_CUDA_TYPE]
    guards[_CUDA_TYPE] = guards[_META_TYPE]
    try:
        yield
    finally:
        guards[_CUDA_TYPE] = before


@contextmanager
def pretended_cuda() -> Iterator[Watch]:
    """Within the block ``cuda:0`` exists, and what is done on it is watched."""
    with ExitStack() as stack:
        stack.enter_context(_guard())
        stack.enter_context(mock.patch.object(torch.nn.Module, "_apply", _apply))
        there = mock.patch("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
        stack.enter_context(there)
        stack.enter_context(mock.patch("torch.cuda.is_bf16_supported", lambda *_, **__: True))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield stack.enter_context(Watch())


def _apply(
    module: torch.nn.Module, convert: Callable[[Tensor], Tensor], recurse: bool = True
) -> torch.nn.Module:
    """As ``Module._apply``, but with new parameters in place of swapped ones."""
    for each in module.modules() if recurse else [module]:
        for name, value in each._parameters.items():
            if value is not None:
                each._parameters[name] = torch.nn.Parameter(convert(value), False)
        for name, buffer in each._buffers.items():
            each._buffers[name] = None if buffer is None else convert(buffer)
    return module


def on_pretended(model: Model) -> Model:
    """A copy of the model with its weights on the pretended device. Call it within the block."""
    there: dict[int, Any] = {}
    network = model._network
    for weights in (*network.parameters(), *network.buffers()):
        moved = torch.empty_like(weights, device=CUDA)
        kept = isinstance(weights, torch.nn.Parameter)
        there[id(weights)] = torch.nn.Parameter(moved, False) if kept else moved
    return type(model)(copy.deepcopy(network, there), model.card, CUDA)
