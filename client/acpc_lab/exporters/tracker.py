"""Hands scores to a tracker in a thread of its own, so that nobody waits for it or fails by it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Self

from acpc_client.errors import ArgumentError

from acpc_lab.exporters.writers import WRITERS, Scored, Writer, epochs_of, record_of
from acpc_lab.integrations import EpochScore

# Seconds for each score that is left at the end; the first few are not logged.
_CLOSE_S, _SOON_S = 60.0, 5.0
# Seconds after which what could not begin is tried again, with the next score.
_AGAIN_S = 60.0
_log = logging.getLogger("acpc_lab")


class Tracker:
    """Writes scores to MLflow, Weights & Biases or TensorBoard.

    Call it with each score: of an epoch, of a sweep's cell, or of a watched checkpoint. An
    error of the tracker, or a library that is not installed, is reported and never raised; scores
    that come meanwhile are not written there.

    Args:
        address: ``mlflow:URI`` (nothing after the colon: ``MLFLOW_TRACKING_URI``),
            ``wandb:PROJECT``, ``wandb:ENTITY/PROJECT`` or ``tensorboard:FOLDER``.
        group: Goes before the names of the runs: a sweep's name.
        on_trouble: Told what goes wrong, in words, each thing once.

    Raises ArgumentError: The address names none of them.
    """

    def __init__(
        self, address: str, group: str = "", on_trouble: Callable[[str], object] = _log.warning
    ) -> None:
        self.address = address
        self._kind, _, self._place = address.partition(":")
        if self._kind not in WRITERS or not (self._place or address == "mlflow:"):
            raise ArgumentError(
                "log_to", f"found {address!r}, wanted mlflow:URI, wandb:PROJECT or tensorboard:DIR"
            )
        self._group = group
        self._on_trouble = on_trouble
        self._reported: set[str] = set()
        self._left = 0
        self._not_before = 0.0
        self._queue: SimpleQueue[tuple[EpochScore, str] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, scored: Scored) -> None:
        """Has scores written; returns at once. What has none is passed over."""
        self.open()
        for found in epochs_of(scored):
            self._left += 1
            self._queue.put(found)

    def open(self) -> None:
        """Begins now, to report a tracker that cannot be used before there is a score."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="acpc-tracker", daemon=True)
            self._thread.start()

    def close(self, timeout: float = _CLOSE_S) -> None:
        """Waits for what is left, as long as a score is written every ``timeout`` seconds."""
        if self._thread is None:
            return
        self._queue.put(None)
        left = self._left
        self._thread.join(min(timeout, _SOON_S))
        if self._thread.is_alive() and timeout > _SOON_S:
            _log.warning("waiting for %s, %g s at most for a score", self.address, timeout)
            self._thread.join(timeout - _SOON_S)
        while self._thread.is_alive() and self._left < left:
            left = self._left
            self._thread.join(timeout)
        if self._thread.is_alive():
            missing = f"{self._left} scores are not written there"
            self._tell(f"does not answer; {missing if self._left else 'its runs are not closed'}")
        self._thread = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Tracker], tuple[str, str]]:
        """Travels to spawned processes with a callback."""
        return Tracker, (self.address, self._group)

    def _work(self) -> None:
        writer = self._begun()
        while (found := self._queue.get()) is not None:
            writer = writer or self._begun()
            if writer is not None:
                self._try("a score is not written there", self._write, writer, *found)
            self._left -= 1
        if writer is not None:
            self._try("its runs are not closed", writer.close)

    def _begun(self) -> Writer | None:
        """Starts the writer; None where that fails, and for a while after."""
        if time.monotonic() < self._not_before:
            return None
        try:
            return WRITERS[self._kind](self._place, self._group)
        except BaseException as error:  # noqa: BLE001 - a library of others
            self._tell(f"nothing is written there: {str(error) or type(error).__name__}")
            self._not_before = time.monotonic() + _AGAIN_S
            return None

    def _write(self, writer: Writer, item: EpochScore, prefix: str) -> None:
        writer.write(record_of(item, prefix))

    def _try(self, trouble: str, call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except BaseException as error:  # noqa: BLE001 - a library of others
            self._tell(f"{trouble}: {str(error) or type(error).__name__}")

    def _tell(self, words: str) -> None:
        if words not in self._reported:
            self._reported.add(words)
            self._on_trouble(f"{self.address}: {words}")
