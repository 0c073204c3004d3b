"""Scores checkpoints beside a training loop that does not wait for them.

scorer = EpochScorer(
    "gpu-host:50051",
    DatasetAnchors("tworoom.h5", "tworoom"),
    GaussianNoise(0.08),
    reference="runs/7/epoch-0",
)
for epoch in range(epochs):
    train(model)
    write_checkpoint(model, root / f"runs/7/epoch-{epoch}")  # below the server's root
    scorer.submit(epoch, f"runs/7/epoch-{epoch}")  # returns at once
    for item in scorer.arrived():
        log(item.metrics(), epoch=item.epoch)
scorer.drain(timeout=600)
"""

from __future__ import annotations

import queue
import re
import threading
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from acpc_client import (
    AcpcClient,
    CheckpointRef,
    DatasetAnchors,
    NumericMode,
    Operation,
    Outcome,
    Perturbation,
    Score,
    ScoreProtocol,
    Thresholds,
    Tls,
)
from acpc_client.errors import AcpcError, FailedPrecondition, ResourceExhausted, Unknown

from acpc_lab.sweeps import Link

_POLL_S = 0.5
# A call on a client that is not ours ends by itself.
_LEAVE_S = 5.0


@dataclass(frozen=True)
class EpochScore:
    """What came of one epoch under one shift.

    Attributes:
        epoch: The epoch the checkpoint is of.
        step: What the caller gave as its step.
        checkpoint: What was scored.
        shift: Under which visual change.
        operation: The job; empty: there is none.
        score: Its score; None: there was an error.
        error: Why there is no score.
    """

    epoch: int
    step: int
    checkpoint: CheckpointRef
    shift: Perturbation
    operation: str
    score: Score | None
    error: AcpcError | None

    @property
    def passed(self) -> bool:
        """Whether the screen lets the checkpoint pass; not without a score or a reference."""
        return self.score is not None and self.score.verdict.outcome is Outcome.PASSED

    def metrics(self, prefix: str = "acpc") -> dict[str, float]:
        """What a logger takes: IR, SR and, with a reference, relative IR, S and the verdict.

        Names are ``prefix/shift/quantity``, for example ``acpc/gaussian_noise_0.08/sr``. ``passed``
        is 1 or 0; it is left out, as relative IR and S are, where there is no reference.
        """
        if self.score is None:
            return {}
        side, verdict = self.score.checkpoint, self.score.verdict
        values = {
            "ir": side.ir_raw,
            "sr": side.sr,
            "ir_relative": verdict.ir_relative,
            "score": verdict.score,
            "passed": None if verdict.ir_relative is None else float(self.passed),
            "epoch": float(self.epoch),
        }
        shift = re.sub(r"[^\w.\-]+", "_", str(self.shift))
        named = {f"{prefix}/{shift}/{name}": value for name, value in values.items()}
        return {name: value for name, value in named.items() if value is not None}


class EpochScorer:
    """Submits checkpoints in a thread of its own and hands the scores out as they arrive.

    Nothing here raises what a server refuses, or waits for one, except ``drain``.

    Args:
        server: ``host:port``, or a client, which stays open.
        anchors: Where the anchors come from: a dataset, or the digest of an anchor set.
        shifts: The visual changes; each is a job.
        reference: The unaugmented checkpoint of the same task, run and family.
        protocol: How IR and SR are measured; None: the paper's protocol.
        thresholds: None: the paper's 0.30 and 0.95.
        numeric_mode: Arithmetic of the network.
        tls: Transport security, where ``server`` is no client.
        backlog: Epochs that may wait to be scored; further ones are turned away.
        patience: Seconds the server may be away at a stretch before an epoch is given up.
        timeout: Seconds one epoch may take.
    """

    def __init__(
        self,
        server: str | AcpcClient,
        anchors: DatasetAnchors | str,
        shifts: Perturbation | Sequence[Perturbation],
        *,
        reference: str | CheckpointRef | None = None,
        protocol: ScoreProtocol | None = None,
        thresholds: Thresholds | None = None,
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        tls: Tls | None = None,
        backlog: int = 8,
        patience: float = 600.0,
        timeout: float = 3600.0,
    ) -> None:
        self._owned = isinstance(server, str)
        self._client = AcpcClient(server, tls=tls) if isinstance(server, str) else server
        self._anchors = anchors
        self._shifts = tuple(shifts) if isinstance(shifts, Sequence) else (shifts,)
        self._reference = reference
        self._protocol = protocol
        self._thresholds = thresholds
        self._numeric_mode = numeric_mode
        self._patience = patience
        self._timeout = timeout
        self._queue: queue.Queue[tuple[int, int, CheckpointRef]] = queue.Queue(backlog)
        self._arrived: deque[EpochScore] = deque()
        self._stop = threading.Event()
        self._idle = threading.Condition()
        self._under_way = 0
        self._thread: threading.Thread | None = None

    def submit(self, epoch: int, checkpoint: str | CheckpointRef, *, step: int = 0) -> bool:
        """Has a checkpoint scored; returns at once.

        Args:
            epoch: The epoch it is of.
            checkpoint: Its name at the server. It must stay as it is until its score arrives.
            step: Kept for the caller.

        Returns:
            False where the epoch was turned away: the backlog is full, or the scorer is closed.
            It arrives with an error then.
        """
        ref = CheckpointRef.of(checkpoint)
        if self._stop.is_set():
            self._give_up(epoch, step, ref, FailedPrecondition("the scorer is closed"))
            return False
        try:
            with self._idle:
                self._queue.put_nowait((epoch, step, ref))
                self._under_way += 1
        except queue.Full:
            waiting = f"{self._queue.maxsize} epochs are waiting for their scores already"
            self._give_up(epoch, step, ref, ResourceExhausted(waiting))
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="acpc-epochs", daemon=True)
            self._thread.start()
        return True

    def arrived(self) -> list[EpochScore]:
        """What has arrived since the last call, in the order of its arrival."""
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def drain(self, timeout: float) -> bool:
        """Waits for everything that was submitted, ``timeout`` seconds at most.

        Returns:
            Whether everything has arrived.
        """
        with self._idle:
            return self._idle.wait_for(lambda: not self._under_way, timeout)

    def close(self) -> None:
        """Ends the thread; what has not arrived arrives with an error. Jobs go on."""
        self._stop.set()
        if self._owned:
            self._client.close()  # ends a call under way
        if self._thread is not None:
            self._thread.join(_LEAVE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _work(self) -> None:
        while True:
            try:
                epoch, step, ref = self._queue.get(timeout=_POLL_S)
            except queue.Empty:
                if self._stop.is_set():
                    return
                continue
            try:
                self._score(epoch, step, ref)
            except AcpcError as error:
                self._give_up(epoch, step, ref, error)
            except Exception as error:  # noqa: BLE001 - training must not lose its scorer
                self._give_up(epoch, step, ref, Unknown(f"{type(error).__name__}: {error}"))
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()

    def _score(self, epoch: int, step: int, ref: CheckpointRef) -> None:
        """Submits one job per shift, then waits for each."""
        link = Link(
            patience=self._patience,
            timeout=self._timeout,
            stop=self._stop,
            on_away=lambda _: None,
        )
        jobs: list[tuple[Perturbation, str, AcpcError | None]] = []
        for shift in self._shifts:
            try:
                jobs.append((shift, self._submitted(link, ref, shift), None))
            except AcpcError as error:
                jobs.append((shift, "", error))
        for shift, name, refusal in jobs:
            score, failure = None, refusal
            if failure is None:
                try:
                    score = self._ended(link, name).result()
                except AcpcError as error:
                    failure = error
            self._arrived.append(EpochScore(epoch, step, ref, shift, name, score, failure))

    def _submitted(self, link: Link, ref: CheckpointRef, shift: Perturbation) -> str:
        request_id = str(uuid.uuid4())
        return link.ask(
            lambda: self._client.score_checkpoint(
                ref,
                self._anchors,
                shift,
                reference=self._reference,
                protocol=self._protocol,
                thresholds=self._thresholds,
                numeric_mode=self._numeric_mode,
                request_id=request_id,
            )
        ).name

    def _ended(self, link: Link, name: str) -> Operation:
        while True:
            operation = link.ask(lambda: self._client.operations.get(name))
            if operation.done:
                return operation
            link.sleep(_POLL_S)
            link.check()

    def _give_up(self, epoch: int, step: int, ref: CheckpointRef, error: AcpcError) -> None:
        for shift in self._shifts:
            self._arrived.append(EpochScore(epoch, step, ref, shift, "", None, error))
