"""Caches the checkpoints on the device: loaded once, kept while there is room."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import torch
from acpc.contract import Checkpoint, CheckpointRef, CheckpointState

from acpc_server.errors import FailedPrecondition, NotFound
from acpc_server.models import (
    CheckpointEntry,
    CheckpointLimits,
    FrozenNetwork,
    FrozenWorldModel,
    find_checkpoint,
    list_checkpoints,
    load_checkpoint,
)
from acpc_server.observe import Metrics

Key = tuple[str, str]
_LEAST_DIGITS = 8


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A frozen model and the files it came from."""

    name: str
    weights: str
    model: FrozenWorldModel
    stored: CheckpointEntry

    def pinned(self) -> CheckpointRef:
        """Its name with the digest of the loaded content."""
        return CheckpointRef(name=self.name, weights=self.weights, digest=self.model.card.digest)


class CheckpointCache:
    """Loads each checkpoint once, however many ask, and drops the least recently used.

    A checkpoint whose files have changed on disk is read again: training overwrites weights.

    Args:
        budget_bytes: Bytes of weights kept; pinned and newest ones stay in any case.
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
        self._metrics = metrics
        self._limits = limits
        self._budget = budget_bytes
        self._lock = threading.Lock()
        self._loading: dict[Key, threading.Event] = {}
        self._loaded: OrderedDict[Key, LoadedCheckpoint] = OrderedDict()
        self._pinned: set[Key] = set()

    def get(self, name: str, weights: str = "", digest: str = "") -> LoadedCheckpoint:
        """The loaded checkpoint; reads it when needed.

        Raises:
            FailedPrecondition: Its digest does not begin with ``digest``, of at least 8 digits,
                or the loader rejects it.
            NotFound, InvalidArgument, PermissionDenied: From the loader.
        """
        loaded = self._obtain(name, weights)
        if digest and not loaded.model.card.digest.startswith(digest.ljust(_LEAST_DIGITS, "-")):
            raise FailedPrecondition(
                f"checkpoint {name!r} has digest {loaded.model.card.digest}, not the {digest} "
                "asked for; its files were replaced",
                reason="CHECKPOINT_CHANGED",
            )
        return loaded

    def count_request(self, checkpoint: LoadedCheckpoint) -> None:
        """Count a request for a checkpoint, however often that has it loaded."""
        self._metrics.count_request(checkpoint.name)

    def entries(self) -> list[Checkpoint]:
        """Every weights file below the root, by name."""
        return [self._status(stored) for stored in list_checkpoints(self._root)]

    def entry(self, name: str, weights: str) -> Checkpoint:
        """One checkpoint, without loading it; raises as :meth:`get` for its files."""
        return self._status(find_checkpoint(self._root, name, weights))

    def pin(self, checkpoint: LoadedCheckpoint) -> None:
        """Keep a checkpoint until it is unloaded."""
        key = _key(checkpoint.stored)
        with self._lock:
            self._pinned.add(key)
            self._loaded.setdefault(key, checkpoint)  # may have been dropped meanwhile
            self._report()

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
        key = _key(stored)
        with self._lock:
            self._pinned.discard(key)
            self._loaded.pop(key, None)
            self._report()
        return self._status(stored)

    def _obtain(self, name: str, weights: str) -> LoadedCheckpoint:
        while True:
            stored = find_checkpoint(self._root, name, weights)
            key = _key(stored)
            with self._lock:
                loaded = self._fresh(stored)
                if loaded is not None:
                    self._loaded.move_to_end(key)
                    return loaded
                others = self._loading.get(key)
                if others is None:
                    mine = self._loading[key] = threading.Event()
            if others is not None:
                others.wait()  # and look again: their load may have failed, or be outdated
                continue
            try:
                return self._load(key, stored)
            finally:
                with self._lock:
                    del self._loading[key]
                mine.set()

    def _fresh(self, stored: CheckpointEntry) -> LoadedCheckpoint | None:
        loaded = self._loaded.get(_key(stored))
        return None if loaded is None or loaded.stored.stamp != stored.stamp else loaded

    def _load(self, key: Key, stored: CheckpointEntry) -> LoadedCheckpoint:
        started = time.perf_counter()
        model = load_checkpoint(
            self._root, stored.name, stored.weights, device=self._device, limits=self._limits
        )
        if isinstance(model, FrozenNetwork):
            model.prepared(torch.float32)  # here, so that no device call waits for it
        self._metrics.checkpoint_load.observe(time.perf_counter() - started)
        loaded = LoadedCheckpoint(stored.name, stored.weights, model, stored)
        with self._lock:
            self._loaded[key] = loaded
            self._loaded.move_to_end(key)
            self._evict(keep=key)
            self._report()
        return loaded

    def _evict(self, keep: Key) -> None:
        for key in list(self._loaded):
            if sum(_held_bytes(loaded.model) for loaded in self._loaded.values()) <= self._budget:
                return
            if key != keep and key not in self._pinned:
                del self._loaded[key]

    def _report(self) -> None:
        self._metrics.checkpoints_loaded.set(len(self._loaded))

    def _status(self, stored: CheckpointEntry) -> Checkpoint:
        with self._lock:
            loaded = self._fresh(stored)
            return Checkpoint(
                name=stored.name,
                weights=stored.weights,
                state=CheckpointState.LOADED if loaded else CheckpointState.AVAILABLE,
                size_bytes=stored.size_bytes,
                model=loaded.model.card if loaded else None,
                pinned=_key(stored) in self._pinned,
            )


def _held_bytes(model: FrozenWorldModel) -> int:
    """Parameters are held in float32, and as products of each mode asked for want them."""
    prepared = model.prepared_bytes if isinstance(model, FrozenNetwork) else 0
    return 4 * model.card.parameter_count + prepared


def _key(stored: CheckpointEntry) -> Key:
    return stored.name, stored.weights
