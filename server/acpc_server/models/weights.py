"""Reads weights files (torch archives, safetensors) as plain tensors and executes nothing.

Reading does not check which tensors there are; ``fill`` compares them with a network.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import safetensors.torch
import structlog
import torch
from torch import Tensor, nn

from acpc_server.errors import UnsafeCheckpoint, shortage
from acpc_server.models.archive import Archive, ByteSource, read_directory
from acpc_server.models.config import OPTIONS_NAME, JsonObject
from acpc_server.models.folder import CheckpointLimits

log = structlog.get_logger("acpc.models")
StateDict = dict[str, Tensor]
Entry = TypeVar("Entry")

STORED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
WRAPPERS = ("state_dict", "model")
AVERAGES = re.compile(r"(^|_)ema(_|$)", re.IGNORECASE)
LIGHTNING_PREFIX = "model."
BACKBONE_PREFIX = "backbone."
COMPILE_PREFIX = "_orig_mod."
PARALLEL_PREFIX = "module."
SAFETENSORS = ".safetensors"
# What a pickle of a plain state dict may name; in a tensor's place it is turned down all the same.
PLAIN_NAME = re.compile(
    r"torch\.([a-z]+\d+|Size|device|\w+Storage)|torch\._utils\._rebuild_\w+|collections\.\w+|"
    r"torch\.serialization\._get_layout|numpy\..*|_codecs\.encode"
)
MAX_READ = 1024
"""Characters of what a receipt says of the weights that were read."""
MAX_HEADER_BYTES = 2**24
"""Header of a safetensors file; a tensor takes about a hundred bytes of it."""
LFS_POINTER = b"version https://git-lfs"


@dataclass(eq=False, repr=False)
class StateReader:
    """Reads one weights file's state dict for the builder of a model family.

    The digest covers ``config`` and ``options``, the trees of ``config.json`` and of what
    ``acpc.json`` beside it says of the model. ``backbone`` reads another file, whose tensors become
    ``backbone.*``.
    """

    filename: str
    _data: bytes
    config: JsonObject
    options: JsonObject = field(default_factory=dict)
    _backbone: StateReader | None = None
    read: str = ""
    """Of a file with several sets of weights, once read: which was taken, and which were not."""

    @cached_property
    def tensors(self) -> StateDict:
        """Tensors by name, wrappers and training prefixes taken off, dtypes as stored.

        Raises UnsafeCheckpoint: The file is damaged, compressed, holds anything but plain dense
        tensors, or would run code.
        """
        if self.filename.endswith(SAFETENSORS):
            state = unwrap(_read_safetensors(self.filename, self._data), self.filename)
        else:
            state = self._of_archive()
        if self._backbone is not None:
            twice = next((name for name in state if name.startswith(BACKBONE_PREFIX)), "")
            if twice:
                other = f"{OPTIONS_NAME} names {self._backbone.filename} for the backbone's weights"
                raise bad_weights(self.filename, twice, f"stored here, but {other}")
            inner = self._backbone.tensors.items()
            state |= {BACKBONE_PREFIX + name: tensor for name, tensor in inner}
        return state

    def _of_archive(self) -> StateDict:
        archive = Archive(self.filename, self._data)
        if called := next((x for x in archive.names if not PLAIN_NAME.fullmatch(x)), ""):
            raise UnsafeCheckpoint(
                f"{self.filename}: holds a pickled Python object ({called:.200}), not a plain "
                "state dict; nothing was executed. Read it as data with: acpc-server import "
                f"{self.filename} NEW_FOLDER",
                reason="CHECKPOINT_PICKLED",
            )
        path, others = choose_state(archive)
        if others:
            hint = "acpc-server import takes one of these with --weights-key"
            log.warning("weights_left_out", file=self.filename, what=others, hint=hint)
            self.read = f"{path or 'the top level'}, and not {', '.join(others)}"[:MAX_READ]
        entries = unwrap(archive.entries(path), self.filename, wrapped=bool(path))
        return archive.tensors(entries, self._data)

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


def choose_state(archive: Archive, key: str = "") -> tuple[str, list[str]]:
    """The path of the state dict that is meant, and what else the file holds weights in.

    That is what ``key`` names; else under ``state_dict`` or ``model``, else the top level. Others
    are dicts of mostly the same names, as an average or what an average replaced, and what is named
    as one. Raises UnsafeCheckpoint: There is no dict of tensors.
    """
    dicts = {path: node for path, node in archive.nodes.items() if node.kind == "dict"}
    if not dicts or (key and key not in dicts):
        what = f"no dict at {key!r:.80}" if key else f"holds a {archive.kind}, not a state dict"
        raise bad_weights(archive.filename, "", what)
    chosen = key or next((path for path in WRAPPERS if path in dicts), "")
    names = set(_without_prefixes(dicts[chosen].tensors).values())
    others = set()
    for path, node in dicts.items():
        alike = 2 * len(names & set(_without_prefixes(node.tensors).values()))
        if path != chosen and (alike >= max(1, len(names)) or AVERAGES.search(path)):
            others |= {path} if node.tensors else set()
    inner = {name.partition(".")[0] for name in dicts[chosen].tensors} if chosen else set()
    return chosen, sorted(others | set(filter(AVERAGES.search, inner)))


def unwrap(
    stored: Mapping[str, Entry], filename: str, *, wrapped: bool = False
) -> dict[str, Entry]:
    """Take off Lightning's prefix and torch.compile's, and DistributedDataParallel's of all names.

    Of what lay below ``state_dict`` or ``model`` leaves out the tensors of losses that a training
    checkpoint holds beside the ``model.`` ones. Raises UnsafeCheckpoint: Nothing is left, or two
    tensors have one name.
    """
    if wrapped and any(key.startswith(LIGHTNING_PREFIX) for key in stored):
        stored = {key: stored[key] for key in stored if key.startswith(LIGHTNING_PREFIX)}
    state: dict[str, Entry] = {}
    for key, name in _without_prefixes(stored).items():
        if name in state:
            problem = f"two tensors are named {name!r} without training prefixes"
            raise bad_weights(filename, key, problem)
        state[name] = stored[key]
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
        read_directory(filename, file, size)
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


def _read_safetensors(filename: str, data: bytes) -> StateDict:
    try:
        return safetensors.torch.load(data)
    except Exception as error:  # damaged bytes raise whatever they like
        if (short := shortage(error)) is not None:
            raise short from error
        raise bad_weights(filename, "", f"not a readable safetensors file: {error}") from None


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
