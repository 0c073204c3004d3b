"""Caches checkpoints on the device and latents of recent requests, least recently used first."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from acpc.contract import Checkpoint, CheckpointRef, CheckpointState
from jaxtyping import Float
from torch import Tensor

from acpc_server.errors import AcpcError, FailedPrecondition, NotFound
from acpc_server.models import (
    CheckpointEntry,
    CheckpointLimits,
    FrozenNetwork,
    FrozenWorldModel,
    find_checkpoint,
    folder_time,
    is_unmoved,
    list_checkpoints,
    list_others,
    load_served,
    read_content,
)
from acpc_server.observe import Metrics
from acpc_server.scheduling import DEFAULT_SERVING, ServingOptions

Key = tuple[str, str]
_LEAST_DIGITS = 8
# What an entry of latents takes beside its numbers: key, tensor, allocation and slot.
ENTRY_BYTES = 640


@dataclass(frozen=True)
class CachedCheckpoint:
    """A frozen model, the files it came from, and how they say that it is served."""

    name: str
    weights: str
    model: FrozenWorldModel
    stored: CheckpointEntry
    serving: ServingOptions = DEFAULT_SERVING

    @property
    def held_bytes(self) -> int:
        """Bytes of the parameters in float32, and of their copy in bfloat16."""
        reduced = self.model.reduced_bytes if isinstance(self.model, FrozenNetwork) else 0
        return 4 * self.model.card.parameter_count + reduced

    def pinned(self) -> CheckpointRef:
        """Return its name with the digest of the loaded content."""
        card = self.model.card
        return CheckpointRef(self.name, self.weights, card.digest, card.model_digest)


class CheckpointCache:
    """Loads each checkpoint once, however many ask, and drops the least recently used.

    Reads a checkpoint again when its files have changed: training overwrites weights. Keeps
    ``budget_bytes`` of weights; pinned and newest ones stay in any case.
    """

    def __init__(
        self,
        root: Path,
        device: torch.device,
        metrics: Metrics,
        *,
        limits: CheckpointLimits,
        budget_bytes: int,
    ) -> None:
        self._root = root
        self._device = device
        self.metrics = metrics
        self._limits = limits
        self._budget = budget_bytes
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._loading: dict[Key, threading.Lock] = {}
        self._loaded: OrderedDict[Key, CachedCheckpoint] = OrderedDict()
        self._pinned: set[Key] = set()
        # By what was asked for: which it is, and when its folder had changed.
        self._found: dict[Key, tuple[Key, int]] = {}

    def get(
        self,
        name: str,
        weights: str = "",
        digest: str = "",
        model_digest: str = "",
        loaded: CachedCheckpoint | None = None,
    ) -> CachedCheckpoint:
        """Return a loaded checkpoint, ``loaded`` where it is at hand, reading it when needed.

        Raises FailedPrecondition: A digest does not begin as asked, with at least 8 digits, or the
        loader rejects it; NotFound, InvalidArgument, PermissionDenied: From the loader.
        """
        loaded = loaded or self._obtain(name, weights)
        card = loaded.model.card
        asked = ("digest", card.digest, digest), ("model_digest", card.model_digest, model_digest)
        for what, found, wanted in asked:
            if wanted and not found.startswith(wanted.ljust(_LEAST_DIGITS, "-")):
                raise FailedPrecondition(
                    f"checkpoint {name!r} has {what} {found}, not the {wanted} asked for; its "
                    "files were replaced",
                    reason="CHECKPOINT_CHANGED",
                )
        return loaded

    def at_hand(self, name: str, weights: str) -> CachedCheckpoint | None:
        """Return what :meth:`get` would return without reading weights; None where it has to."""
        key, changed = self._found.get((name, weights), (("", ""), 0))
        loaded = self._loaded.get(key)
        if loaded is None or not is_unmoved(self._root, loaded.stored, changed):
            changed = folder_time(self._root, name)  # before it is looked into
            try:
                stored = find_checkpoint(self._root, name, weights)
            except AcpcError:
                return None  # as get will say
            key, loaded = (stored.name, stored.weights), self._fresh(stored)
        with self._lock:
            if loaded is not None and key in self._loaded:
                self._loaded.move_to_end(key)
                self._found[name, weights] = key, changed
        return loaded

    def loaded(self) -> list[str]:
        """List the names of what is loaded, least recently used first."""
        with self._lock:
            return [loaded.name for loaded in self._loaded.values()]

    def entries(self, others: bool = False) -> list[Checkpoint]:
        """List every weights file below the root, by name, then ``others`` that no load takes."""
        found = [self._status(stored) for stored in list_checkpoints(self._root)]
        if others:
            found += [
                Checkpoint(name, "", CheckpointState.UNSPECIFIED, 0, None, False, *look)
                for name, look in list_others(self._root)
            ]
        return found

    def entry(self, name: str, weights: str) -> Checkpoint:
        """Describe one checkpoint without loading it; raises as :meth:`get` for its files."""
        return self._status(find_checkpoint(self._root, name, weights))

    def content(self, name: str, weights: str) -> Checkpoint:
        """As :meth:`entry`, with what its files hold, for which they are read once."""
        stored = find_checkpoint(self._root, name, weights)
        with self._reading:  # whoever asks for the same at once finds it read
            content, problem = read_content(self._root, stored, self._limits)
        if find_checkpoint(self._root, name, weights) != stored:
            content, problem = "", "its files changed while they were read"
        return replace(self._status(stored), content=content, problem=problem)

    def pin(self, checkpoint: CachedCheckpoint) -> None:
        """Keep a checkpoint until it is unloaded."""
        key = checkpoint.stored.name, checkpoint.stored.weights
        with self._lock:
            self._pinned.add(key)
            self._loaded.setdefault(key, checkpoint)  # may have been dropped meanwhile
            self.metrics.checkpoints_loaded.set(len(self._loaded))

    def unload(self, name: str, weights: str) -> Checkpoint:
        """Drop a checkpoint, also one whose files are gone; work that holds it finishes."""
        try:
            stored = find_checkpoint(self._root, name, weights)
        except NotFound:
            with self._lock:
                kept = [loaded.stored for loaded in self._loaded.values()]
            found = [one for one in kept if one.name == name and weights in ("", one.weights)]
            if not found:
                raise
            stored = found[0]
        key = stored.name, stored.weights
        with self._lock:
            self._pinned.discard(key)
            self._loaded.pop(key, None)
            self.metrics.checkpoints_loaded.set(len(self._loaded))
        return self._status(stored)

    def _obtain(self, name: str, weights: str) -> CachedCheckpoint:
        if (loaded := self.at_hand(name, weights)) is not None:
            return loaded
        stored = find_checkpoint(self._root, name, weights)
        key = stored.name, stored.weights
        with self._lock:
            turn = self._loading.setdefault(key, threading.Lock())
        with turn:  # and look again: others have perhaps loaded it meanwhile
            try:
                stored = find_checkpoint(self._root, name, weights)
                return self._fresh(stored) or self._load(stored)
            finally:
                self._loading.pop(key, None)

    def _fresh(self, stored: CheckpointEntry) -> CachedCheckpoint | None:
        loaded = self._loaded.get((stored.name, stored.weights))
        return None if loaded is None or loaded.stored.stamp != stored.stamp else loaded

    def _load(self, stored: CheckpointEntry) -> CachedCheckpoint:
        started, key = time.perf_counter(), (stored.name, stored.weights)
        model, serving = load_served(
            self._root, stored.name, stored.weights, device=self._device, limits=self._limits
        )
        self.metrics.checkpoint_load.observe(time.perf_counter() - started)
        loaded = CachedCheckpoint(stored.name, stored.weights, model, stored, serving)
        with self._lock:
            self._loaded[key] = loaded
            self._loaded.move_to_end(key)
            for other in list(self._loaded):
                if sum(one.held_bytes for one in self._loaded.values()) <= self._budget:
                    break
                if other != key and other not in self._pinned:
                    del self._loaded[other]
            self.metrics.checkpoints_loaded.set(len(self._loaded))
        return loaded

    def _status(self, stored: CheckpointEntry) -> Checkpoint:
        with self._lock:
            loaded = self._fresh(stored)
            return Checkpoint(
                name=stored.name,
                weights=stored.weights,
                state=CheckpointState.LOADED if loaded else CheckpointState.AVAILABLE,
                size_bytes=stored.size_bytes,
                model=loaded.model.card if loaded else None,
                pinned=(stored.name, stored.weights) in self._pinned,
                stamp=hashlib.sha256(repr(stored.stamp).encode()).hexdigest()[:32],
            )


class LatentCache:
    """Keeps the latents of recent requests within a byte budget; 0 keeps none. Thread-safe.

    A key must cover everything that determines the latents: checkpoint, arithmetic, and the frames
    or what they are made from.
    """

    def __init__(self, budget_bytes: int, metrics: Metrics) -> None:
        self._budget = budget_bytes
        self._hits, self._misses = (metrics.latent_lookups.labels(x) for x in ("hit", "miss"))
        self._kept: OrderedDict[str, Tensor] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> Float[Tensor, "n dim"] | None:
        """Return the latents of a key that are still here."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
        (self._misses if found is None else self._hits).inc()
        return found

    def put(self, key: str, latents: Float[Tensor, "n dim"]) -> None:
        """Keep latents, a tensor of their own, dropping the least recently used."""
        size = latents.nbytes + ENTRY_BYTES
        with self._lock:
            if key in self._kept or size > self._budget:
                return
            self._kept[key] = latents
            self._bytes += size
            while self._bytes > self._budget:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= oldest.nbytes + ENTRY_BYTES
