"""Reads weights files (torch archives, safetensors) as plain tensors and executes nothing.

Reading does not check which tensors there are; ``fill`` compares them with a network.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import safetensors.torch
import structlog
import torch
from torch import Tensor, nn

from acpc_server.errors import UnsafeCheckpoint, shortage
from acpc_server.models.config import OPTIONS_NAME, Config, JsonObject, parse_config
from acpc_server.models.folder import CheckpointLimits

log = structlog.get_logger("acpc.models")
StateDict = dict[str, Tensor]
ByteSource = io.BufferedReader | io.BytesIO

STORED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
WRAPPERS = ("state_dict", "model")
AVERAGES = re.compile(r"(^|_)ema(_|$)", re.IGNORECASE)
LIGHTNING_PREFIX = "model."
BACKBONE_PREFIX = "backbone."
COMPILE_PREFIX = "_orig_mod."
PARALLEL_PREFIX = "module."
MAX_ARCHIVE_ENTRIES = 100_000
SAFETENSORS = ".safetensors"
MAX_HEADER_BYTES = 2**24
"""Header of a safetensors file; a tensor takes about a hundred bytes of it."""
LFS_POINTER = b"version https://git-lfs"


@dataclass(eq=False, repr=False)
class StateReader:
    """Reads one weights file's state dict for the builder of a model family.

    The digest covers ``config`` and ``options``, the trees of ``config.json`` and ``acpc.json``
    beside it. ``backbone`` reads another file, whose tensors become ``backbone.*``.
    """

    filename: str
    _data: bytes
    config: JsonObject
    options: JsonObject = field(default_factory=dict)
    _backbone: StateReader | None = None

    def parse_options(self, kind: type[Config]) -> Config:
        """Validate ``acpc.json``; raises UnsafeCheckpoint, as :func:`parse_config`."""
        return parse_config(kind, self.options, filename=OPTIONS_NAME)

    @cached_property
    def tensors(self) -> StateDict:
        """Tensors by name, wrappers and training prefixes taken off, dtypes as stored.

        Raises UnsafeCheckpoint: The file is damaged, compressed, holds anything but plain dense
        tensors, or would run code.
        """
        read = _read_safetensors if self.filename.endswith(SAFETENSORS) else read_archive
        state = unwrap(read(self.filename, self._data), self.filename)
        if self._backbone is not None:
            twice = next((name for name in state if name.startswith(BACKBONE_PREFIX)), "")
            if twice:
                other = f"{OPTIONS_NAME} names {self._backbone.filename} for the backbone's weights"
                raise bad_weights(self.filename, twice, f"stored here, but {other}")
            inner = self._backbone.tensors.items()
            state |= {BACKBONE_PREFIX + name: tensor for name, tensor in inner}
        return state

    @cached_property
    def digest(self) -> str:
        """Hex sha256 over the canonical config and each tensor's name, dtype, shape and bytes.

        Names are sorted, so the container format and the order of keys do not enter.
        """
        sha = hashlib.sha256()
        sha.update(canonical(self.config))
        if self.options:
            sha.update(canonical(self.options))
        for name in sorted(self.tensors):
            tensor = self.tensors[name]
            sha.update(canonical([name, str(tensor.dtype), list(tensor.shape)]))
            sha.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return sha.hexdigest()


def unwrap(stored: object, filename: str) -> StateDict:
    """Take off a ``state_dict`` or ``model`` wrapper, Lightning's prefix and torch.compile's.

    Also DistributedDataParallel's, where every tensor has it. Leaves out the tensors of losses that
    a training checkpoint holds beside the ``model.`` ones, and averages, of which the log tells.
    Raises UnsafeCheckpoint: What remains is no mapping from names to plain dense CPU tensors.
    """
    if not isinstance(stored, Mapping):
        raise bad_weights(filename, "", f"holds a {type(stored).__name__}, not a state dict")
    maps = {x: y for x, y in stored.items() if isinstance(x, str) and isinstance(y, Mapping)}
    inner = next((maps[key] for key in WRAPPERS if key in maps), stored)
    beside = {*maps, *(str(key).partition(".")[0] for key in inner)} if inner is not stored else ()
    if averages := sorted(filter(AVERAGES.search, beside)):
        hint = "to read these, save them in a weights file of their own"
        log.warning("weights_left_out", file=filename, what=averages, hint=hint)
    if inner is not stored and any(str(key).startswith(LIGHTNING_PREFIX) for key in inner):
        inner = {key: inner[key] for key in inner if str(key).startswith(LIGHTNING_PREFIX)}
    for key, value in inner.items():
        if not isinstance(key, str):
            raise bad_weights(filename, repr(key), "tensor names must be strings")
        _check_plain(filename, key, value)
    state: StateDict = {}
    for key, name in _without_prefixes(inner).items():
        if name in state:
            problem = f"two tensors are named {name!r} without training prefixes"
            raise bad_weights(filename, key, problem)
        state[name] = inner[key].detach()
    if not state:
        raise bad_weights(filename, "", "holds no tensors")
    return state


def _without_prefixes(names: Iterable[str]) -> dict[str, str]:
    """What each name is without the prefixes of wrappers."""
    plain = {x: x.replace(COMPILE_PREFIX, "").removeprefix(LIGHTNING_PREFIX) for x in names}
    if all(name.startswith(PARALLEL_PREFIX) for name in plain.values()):
        plain = {x: name.removeprefix(PARALLEL_PREFIX) for x, name in plain.items()}
    return plain


def count_parameters(network: nn.Module, limits: CheckpointLimits) -> int:
    """Count the parameters of a network; raises UnsafeCheckpoint above the limit."""
    count = sum(parameter.numel() for parameter in network.parameters())
    if count > limits.parameters:
        raise UnsafeCheckpoint(
            f"config.json: asks for {count} parameters, above the limit of {limits.parameters}",
            reason="CHECKPOINT_TOO_LARGE",
        )
    return count


def fill(network: nn.Module, state: Mapping[str, Tensor], filename: str) -> None:
    """Give a network built on the meta device its weights, as float32.

    Compares names and shapes before copying any tensor. BatchNorm's ``num_batches_tracked`` plays
    no part in inference and may be absent. Raises UnsafeCheckpoint: A tensor is missing,
    unexpected, of another shape or dtype, not finite, or a negative variance; the message names it.
    """
    wanted = network.state_dict()
    counters = {name for name in wanted if name.endswith(".num_batches_tracked")}
    # A network may itself have names that begin like a wrapper's prefix, which was taken off.
    own = {plain: name for name, plain in _without_prefixes(wanted).items() if name not in state}
    state = {name if name in wanted else own.get(name, name): x for name, x in state.items()}
    missing = sorted(wanted.keys() - state.keys() - counters)
    extra = sorted(state.keys() - wanted.keys())
    if missing:
        problem = f"missing{_and_more(missing)}"
        if extra:  # the same tensor under another prefix, where there is one
            like = next((name for name in extra if name.endswith(missing[0])), extra[0])
            problem += f"; the file has {like:.200}{_and_more(extra)} instead"
        raise bad_weights(filename, missing[0], problem)
    if extra:
        raise bad_weights(filename, extra[0], f"the network has no such tensor{_and_more(extra)}")
    for name, tensor in state.items():
        if tensor.shape != wanted[name].shape:
            found, expected = tuple(tensor.shape), tuple(wanted[name].shape)
            raise bad_weights(filename, name, f"shape {found}, but the config wants {expected}")
    ready = {name: _as_float32(filename, name, state[name]) for name in state.keys() - counters}
    for name in counters:
        ready[name] = torch.zeros((), dtype=torch.int64)
    network.load_state_dict(ready, assign=True)


def bad_weights(filename: str, key: str, problem: str) -> UnsafeCheckpoint:
    """Return the error for a tensor, or for the whole file when ``key`` is empty."""
    where = f"{filename}: {key}: " if key else f"{filename}: "
    return UnsafeCheckpoint(where + problem, reason="CHECKPOINT_WEIGHTS_REFUSED")


def check_container(filename: str, file: ByteSource, size: int) -> None:
    """Check the ends of a weights file, before it is read whole.

    Raises UnsafeCheckpoint: Not the container that its name says, or one of another size.
    """
    if file.read(len(LFS_POINTER)) == LFS_POINTER:
        raise bad_weights(filename, "", "a pointer of Git LFS, not the weights: git lfs pull")
    file.seek(0)
    if not filename.endswith(SAFETENSORS):
        _check_archive(filename, file, size)
        return
    length = int.from_bytes(file.read(8), "little")
    try:
        if length > min(size - 8, MAX_HEADER_BYTES):
            raise ValueError(f"its header would hold {length} bytes")
        header = json.loads(file.read(length))
        ends = [header[name]["data_offsets"][1] for name in header if name != "__metadata__"]
        if max(ends, default=0) != size - 8 - length:
            raise ValueError("its tensors do not fill it")
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        what = f"not a safetensors file of {size} bytes: {error}"
        raise bad_weights(filename, "", what) from None


def _read_safetensors(filename: str, data: bytes) -> object:
    try:
        return safetensors.torch.load(data)
    except Exception as error:  # noqa: BLE001  damaged bytes raise whatever they like
        _raise_if_host_is_short(error)
        raise bad_weights(filename, "", f"not a readable safetensors file: {error}") from None


def read_archive(filename: str, data: bytes) -> object:
    """Read a torch archive: tensors, plain values and containers of them, however nested.

    Raises UnsafeCheckpoint: The file is damaged or compressed, or would run code.
    """
    _check_archive(filename, io.BytesIO(data), len(data))
    # The restricted unpickler allocates one of any size before anything is checked.
    if b"bytearray\n" in data:
        problem = "asks for a bytearray of any size, which is no tensor; nothing was allocated"
        raise bad_weights(filename, "", problem)
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001  damaged bytes raise whatever they like
        _raise_if_host_is_short(error)
        message = str(error)
    # The message itself advises to load the file unsafely, so only the name in it is kept.
    found = re.search(r"GLOBAL (\S+)|class (\S+)", message)
    if found:
        culprit = found[1] or found[2]
        problem = (
            f"holds a pickled Python object ({culprit}), not a plain state dict; nothing was "
            f"executed. Read it as data with: acpc-server import {filename} NEW_FOLDER"
        )
        raise UnsafeCheckpoint(f"{filename}: {problem}", reason="CHECKPOINT_PICKLED")
    elif "weights_only" in message or "Weights only" in message:
        problem = "its pickle is damaged or holds more than tensors; nothing was executed"
    else:
        problem = f"damaged: {message.splitlines()[0] if message else 'unreadable'}"
    raise bad_weights(filename, "", problem)


def _raise_if_host_is_short(error: Exception) -> None:
    if (short := shortage(error)) is not None:
        raise short from error


def _check_archive(filename: str, file: ByteSource, size: int) -> None:
    """Torch stores its records uncompressed, so honest sizes add up to less than the file."""
    if file.read(2) != b"PK":
        problem = "not an archive of torch.save (which is a zip file); files older than torch 1.6"
        raise bad_weights(filename, "", f"{problem} must be saved again")
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
    except Exception as error:  # noqa: BLE001  as above
        _raise_if_host_is_short(error)
        raise bad_weights(filename, "", f"truncated or damaged archive: {error}") from None
    if len(entries) > MAX_ARCHIVE_ENTRIES:
        raise bad_weights(filename, "", f"{len(entries)} archive entries")
    if len({entry.filename for entry in entries}) != len(entries):
        raise bad_weights(filename, "", "two archive entries have one name")
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            problem = "compressed or encrypted entry; torch.save writes neither"
            raise bad_weights(filename, entry.filename, problem)
    total = sum(entry.file_size for entry in entries)
    if total > size:
        raise bad_weights(filename, "", f"entries claim {total} bytes in a file of {size}")


def _check_plain(filename: str, name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise bad_weights(filename, name, f"a {type(value).__name__}, not a tensor")
    if value.layout != torch.strided or value.device.type != "cpu" or value.is_quantized:
        raise bad_weights(filename, name, "not a dense CPU tensor")
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        problem = f"shape {tuple(value.shape)} is larger than its stored data"
        raise bad_weights(filename, name, problem)


def _as_float32(filename: str, name: str, tensor: Tensor) -> Tensor:
    if tensor.dtype not in STORED_DTYPES:
        wanted = ", ".join(str(dtype).removeprefix("torch.") for dtype in STORED_DTYPES)
        found = str(tensor.dtype).removeprefix("torch.")
        raise bad_weights(filename, name, f"dtype {found}; one of {wanted} is wanted")
    values = tensor.to(torch.float32).contiguous()
    if not torch.isfinite(values).all():
        raise bad_weights(filename, name, "holds values that are not finite")
    if name.endswith(".running_var") and bool((values < 0).any()):
        raise bad_weights(filename, name, "holds a negative variance")
    return values


def _and_more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def canonical(value: object) -> bytes:
    """JSON with sorted keys and no spaces, as digests read it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
