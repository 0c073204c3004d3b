"""Scores checkpoints beside a training loop that does not wait for them.

scorer = EpochScorer(
    "gpu-host:50051",
    DatasetAnchors("tworoom.h5", "tworoom"),
    GaussianNoise(0.08),
    reference="runs/7/epoch-0",
)
for epoch in range(epochs):
    write_checkpoint(train(model), root / f"runs/7/epoch-{epoch}")  # below the server's root
    scorer.submit(epoch, f"runs/7/epoch-{epoch}")  # returns at once
    for item in scorer.arrived():
        log(item.metrics(), epoch=item.epoch)
scorer.drain(timeout=600)
"""

from __future__ import annotations

import dataclasses
import logging
import queue
import re
import threading
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from acpc.contract import shared
from acpc_client import (
    Access,
    AcpcClient,
    CheckpointRef,
    DatasetAnchors,
    EvidenceOptions,
    NumericMode,
    Operation,
    Outcome,
    Perturbation,
    Score,
    ScoreProtocol,
    ScoreRequest,
    Thresholds,
    Tls,
    Token,
    UntilDecided,
    load_thresholds,
)
from acpc_client.errors import (
    AcpcError,
    ArgumentError,
    FailedPrecondition,
    ResourceExhausted,
    RunEnded,
    Unknown,
)

from acpc_lab.campaigns import Campaign, CampaignProgress, Link, Options, Task
from acpc_lab.evidence import ERROR_HALFLIFE, at_epoch

_POLL_S = 0.5
_log = logging.getLogger("acpc_lab")
# A call on a client that is not ours ends by itself.
_JOIN_S = 5.0


@dataclass(eq=False, repr=False, kw_only=True)
class ScoringOptions:
    """Options of scoring epochs.

    ``tls``, ``token`` and ``insecure`` are those of ``Access``, where ``server`` is no client.

    Attributes:
        reference: The unaugmented checkpoint of the same task, run and family.
        protocol: How IR and SR are measured; None: the paper's protocol.
        thresholds: Numbers, or a file of ``acpc study run thresholds --out``; None: 0.30 and 0.95.
        numeric_mode: Arithmetic of the network.
        evidence: How sure verdicts are made to be, over all epochs together; None: 95 %.
        error_halflife: Epochs over which half of the error of a confident verdict is spent, so that
            all together err no more often than one; None: each is judged as if alone.
        until_decided: Measures more and more anchors until a verdict is certain; None: all anchors.
        backlog: Epochs that may wait to be scored; further ones are rejected.
        patience: Seconds the server may be away at a stretch before an epoch is given up.
        timeout: Seconds one epoch may take.
    """

    reference: str | CheckpointRef | None = None
    protocol: ScoreProtocol | None = None
    thresholds: Thresholds | str | Path | None = None
    numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT
    evidence: EvidenceOptions | None = None
    error_halflife: int | None = ERROR_HALFLIFE
    until_decided: UntilDecided | None = None
    backlog: int = 8
    patience: float = 600.0  # nobody watches a training run: its server may be starting still
    timeout: float = 3600.0
    tls: Tls | None = None
    token: Token | None = None
    insecure: bool = False


@dataclass(frozen=True)
class EpochScore:
    """The score of one epoch under one shift, or why there is none.

    Attributes:
        step: What the caller gave as its step.
        operation: The job; empty: there is none.
        score: Its score; None: there was an error.
        error: Why there is no score.
    """

    epoch: int
    step: int
    checkpoint: CheckpointRef
    shift: Perturbation
    operation: str = ""
    score: Score | None = None
    error: AcpcError | None = None

    @property
    def passed(self) -> bool:
        """Whether the screen lets the checkpoint pass; not without a score or a reference."""
        return self.score is not None and self.score.verdict.outcome is Outcome.PASSED

    def metrics(self, prefix: str = "acpc") -> dict[str, float]:
        """Returns the numbers of ``Score.metrics`` and ``epoch`` for a logger; {} without a score.

        Names are ``prefix/shift/quantity``, for example ``acpc/gaussian_noise_0.08/sr``.
        """
        if self.score is None:
            return {}
        values = {**self.score.metrics(), "epoch": float(self.epoch)}
        return {f"{prefix}/{in_metric(self.shift)}/{name}": x for name, x in values.items()}


def in_metric(shift: object) -> str:
    """Spells a shift for the name of a metric: other characters become ``_``."""
    return re.sub(r"[^\w.\-]+", "_", str(shift))


class _EpochTask(Task):
    """One epoch under one shift, as a task of a campaign."""

    score: Score | None = None
    handed_out = False

    def __init__(self, wanted: EpochScore, request: dict[str, Any]) -> None:
        super().__init__(str(uuid.uuid4()), f"epoch {wanted.epoch} under {wanted.shift}")
        self.wanted = wanted
        self._request = {**request, "checkpoint": wanted.checkpoint, "shift": wanted.shift}

    def submit(self, client: AcpcClient, attempt: int) -> Operation:
        asked = {**self._request, "request_id": f"{self.id}-{attempt}", "patience": 0.0}
        return client.score_checkpoint(**asked).submitted

    def keep(self, operation: Operation) -> None:
        self.score = operation.result()


@dataclass(eq=False, repr=False)
class EpochScorer(ScoringOptions):
    """Submits checkpoints in a thread of its own and hands the scores out as they arrive.

    Nothing here raises what a server rejects, or waits for one, except ``drain``.

    Attributes:
        server: ``host:port``, or a client, which stays open.
        anchors: Where the anchors come from: a dataset, or the digest of an anchor set.
        shifts: The visual changes; each is a job.

    Raises ArgumentError: The file of the thresholds cannot be used; names the field.
    """

    server: str | AcpcClient
    anchors: DatasetAnchors | str
    shifts: Perturbation | Sequence[Perturbation]

    def __post_init__(self) -> None:
        server = self.server
        self._owned = isinstance(server, str)
        access: Any = {name: getattr(self, name) for name in Access.__annotations__}
        self._client = AcpcClient(server, **access) if isinstance(server, str) else server
        self._each = tuple(self.shifts) if isinstance(self.shifts, Sequence) else (self.shifts,)
        self._request = shared(self, ScoreRequest)
        if isinstance(file := self.thresholds, str | Path):
            chosen = load_thresholds(file)
            self._request["thresholds"] = chosen.thresholds
            for sentence in chosen.warnings:
                _log.warning("%s: %s", file, sentence)
        halflife = self.error_halflife
        if halflife is not None and halflife < 1:
            raise ArgumentError("error_halflife", f"found {halflife}, wanted at least 1, or None")
        self._queue: queue.Queue[list[_EpochTask]] = queue.Queue(self.backlog)
        self._arrived: deque[EpochScore] = deque()
        self._stop = threading.Event()
        self._away: AcpcError | None = None
        self._thread: threading.Thread | None = None

    def submit(self, epoch: int, checkpoint: str | CheckpointRef, *, step: int = 0) -> bool:
        """Has a checkpoint scored, which must stay as it is until then; returns at once.

        Returns False where the epoch was rejected because the backlog is full or the scorer is
        closed; it arrives with an error then. ``step`` is kept for the caller.
        """
        sure = at_epoch(self.evidence or EvidenceOptions(), epoch, self.error_halflife)
        request = {**self._request, "evidence": sure}
        of = epoch, step, CheckpointRef.of(checkpoint)
        tasks = [_EpochTask(EpochScore(*of, shift), request) for shift in self._each]
        if self._stop.is_set():
            self._hand_out(tasks, FailedPrecondition("the scorer is closed"))
            return False
        try:
            self._queue.put_nowait(tasks)
        except queue.Full:
            waiting = f"{self._queue.maxsize} epochs are waiting for their scores already"
            self._hand_out(tasks, ResourceExhausted(waiting))
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="acpc-epochs", daemon=True)
            self._thread.start()
        return True

    def arrived(self) -> list[EpochScore]:
        """Returns what has arrived since the last call, in the order of its arrival."""
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def drain(self, timeout: float) -> bool:
        """Waits ``timeout`` seconds at most; returns whether all that was submitted arrived."""
        with self._queue.all_tasks_done:
            return self._queue.all_tasks_done.wait_for(
                lambda: not self._queue.unfinished_tasks, timeout
            )

    def close(self) -> None:
        """Ends the thread; what has not arrived arrives with an error. Jobs go on."""
        self._stop.set()
        if self._owned:
            self._client.close()  # ends a call under way
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _work(self) -> None:
        while True:
            try:
                tasks = self._queue.get(timeout=_POLL_S)
            except queue.Empty:
                if self._stop.is_set():
                    return
                continue
            self._score(tasks)
            self._queue.task_done()

    def _score(self, tasks: Sequence[_EpochTask]) -> None:
        """Has one job per shift, and hands each score out as soon as its job ends."""
        link = Link(self._client, patience=self.patience, timeout=self.timeout, stop=self._stop)
        campaign = Campaign(self._client, link, tasks, Options(), on_update=self._update)
        try:
            campaign.run()
        except RunEnded as error:
            self._hand_out(tasks, error)
        except Exception as error:  # noqa: BLE001 - training must not lose its scorer
            self._hand_out(tasks, Unknown(f"{type(error).__name__}: {error}"))

    def _update(self, now: CampaignProgress[_EpochTask]) -> None:
        if (now.away is None) != (self._away is None):
            self._away = now.away
            _log.warning(now.away.message if now.away else "the server is back")
        self._hand_out(now.changed)

    def _hand_out(self, tasks: Sequence[_EpochTask], failure: AcpcError | None = None) -> None:
        """Hands out what is done; with a failure, all that is left."""
        for task in tasks:
            if task.handed_out or not (task.state.done or failure):
                continue
            task.handed_out = True
            problem = None if task.score is not None else task.problem or failure
            came = dataclasses.replace(
                task.wanted, operation=task.entry.operation, score=task.score, error=problem
            )
            self._arrived.append(came)
