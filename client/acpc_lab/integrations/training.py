"""A Lightning callback that has checkpoints scored while training goes on; see docs/sweeps.md.

It is a callback of ``lightning.pytorch`` or of ``pytorch_lightning``, whichever the program has
imported; in a list of callbacks the trainer of either takes it.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from acpc.contract import cell, curve_of, shared
from acpc_client import AcpcClient, CheckpointRef, DatasetAnchors, Outcome, Perturbation, Score
from acpc_client.errors import AcpcError, ArgumentError, FailedPrecondition

from acpc_lab.evidence import Gate, limits
from acpc_lab.integrations.epochs import EpochScore, EpochScorer, ScoringOptions, in_metric

Export = Callable[[Any, Any, int], str | CheckpointRef | None]
_UNDECIDED = ("continue", "fail")
_LIBRARIES = ("lightning.pytorch", "pytorch_lightning")


def _callback() -> Any:  # noqa: ANN401 - a class of a library without types
    """The base of callbacks of the library that is loaded, or else of the one installed.

    Raises FailedPrecondition: Neither is installed.
    """
    for name in sorted(_LIBRARIES, key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(name).Callback
        except ImportError:
            continue
    raise FailedPrecondition("the callback needs lightning: pip install lightning")


@dataclass(eq=False, repr=False, kw_only=True)
class CallbackOptions(ScoringOptions):
    """Options of the callback, those of ``ScoringOptions`` included.

    Attributes:
        every: Epochs from one score to the next.
        prefix: Before the names of what is logged.
        listeners: Called with every score.
        stop_when: Told every score; where it returns True, training stops after that epoch.
        gate: Raise ``ScreenFailed`` at the end of ``fit`` when the last scored epoch does not pass
            under every shift, or none was scored. ``"point"``, or True: by its numbers as they are;
            ``"confident"``: by their intervals, which may leave it undecided.
        undecided: What a confident gate does where none surely fails and one is undecided:
            ``"continue"`` with a warning, or ``"fail"`` as if it did not pass.
        drain: Seconds to wait for scores at the end of ``fit``.
        raise_errors: Raise what goes wrong instead of warning.
    """

    every: int = 1
    prefix: str = "acpc"
    listeners: Sequence[Callable[[EpochScore], object]] = ()
    stop_when: Callable[[EpochScore], bool] | None = None
    gate: bool | str = False
    undecided: str = "continue"
    drain: float = 600.0
    raise_errors: bool = False


class ScreenFailed(FailedPrecondition):
    """The last epoch that was scored does not pass the screen."""


@dataclass(eq=False, repr=False)
class ScoreCheckpointCallback(_callback(), CallbackOptions):  # type: ignore[misc]
    """Scores a checkpoint after an epoch; training does not wait.

    After every ``every``-th epoch ``export`` is called on all ranks; rank zero has the checkpoint
    that it names scored by a thread of its own. Scores are logged when they arrive, with the step
    of the epoch they belong to, to every logger of the trainer: see ``EpochScore.metrics`` for the
    names. At the end of ``fit`` the last ones are waited for. What goes wrong on the way there is
    a warning.

    Attributes:
        server: ``host:port``, or a client, which stays open.
        anchors: Where the anchors come from: a dataset, or the digest of an anchor set.
        shifts: The visual changes; each is a job.
        export: ``export(trainer, module, epoch)`` writes a checkpoint that the server can read and
            returns its name, or None for an epoch not to be scored. Training waits for it. A
            checkpoint must stay as it is until its score arrives: give each epoch its own.
        scores: Everything that has arrived, errors included, in the order of its arrival.
    """

    server: str | AcpcClient
    anchors: DatasetAnchors | str
    shifts: Perturbation | Sequence[Perturbation]
    _: KW_ONLY
    export: Export
    scores: list[EpochScore] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ArgumentError("every", f"found {self.every}, wanted at least 1")
        self.gate = _one_of("gate", self.gate or "", "", *Gate)
        self.undecided = _one_of("undecided", self.undecided, *_UNDECIDED)
        self._scorer: EpochScorer | None = None
        self._wants_stop = False

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """Gets ready."""
        self.scores, self._wants_stop = [], False
        if trainer.is_global_zero:
            asked = self.server, self.anchors, self.shifts
            self._scorer = EpochScorer(*asked, **shared(self, ScoringOptions))

    def on_train_batch_end(self, trainer: Any, *_: object) -> None:  # noqa: ANN401
        """Logs what has arrived."""
        self._log(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """Has the epoch scored."""
        epoch = trainer.current_epoch
        if (epoch + 1) % self.every == 0:
            self._submit(trainer, pl_module, epoch)
        self._log(trainer)
        if trainer.strategy.reduce_boolean_decision(self._wants_stop, all=False):
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """Waits for the last scores, and gates on them."""
        if self._scorer is not None:
            self._scorer.drain(self.drain)
        self._close()
        self._log(trainer)
        found = self._objection() if self.gate and trainer.is_global_zero else ""
        if trainer.strategy.reduce_boolean_decision(bool(found), all=False):
            raise ScreenFailed(found or "rank zero objects")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ANN401
        """Leaves the jobs to the server."""
        self._close()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ANN401
        """Ends the scoring thread and closes the client when training ends."""
        self._close()

    def _submit(self, trainer: Any, module: Any, epoch: int) -> None:  # noqa: ANN401
        try:
            checkpoint = self.export(trainer, module, epoch)
        except Exception as error:  # noqa: BLE001 - training goes on
            self._trouble(f"export of epoch {epoch}", error)
            return
        if checkpoint is not None and self._scorer is not None:
            self._scorer.submit(epoch, checkpoint, step=trainer.global_step)

    def _log(self, trainer: Any) -> None:  # noqa: ANN401
        """Hands what has arrived to the loggers, in the thread of the training loop."""
        if self._scorer is None:
            return
        for item in self._scorer.arrived():
            self.scores.append(item)
            try:
                if item.error is not None:
                    raise item.error
                for logger in trainer.loggers:
                    logger.log_metrics(item.metrics(self.prefix), step=item.step)
                    if limit := self._limit(item):
                        logger.log_metrics(limit, step=item.step)
                for listener in self.listeners:
                    listener(item)
                self._wants_stop |= self.stop_when is not None and self.stop_when(item)
            except Exception as error:  # noqa: BLE001 - training goes on
                job = f" ({item.operation})" if item.operation else ""
                self._trouble(f"epoch {item.epoch} under {item.shift}{job}", error)

    def _limit(self, item: EpochScore) -> dict[str, float]:
        """Returns the limit of an epoch, ``prefix/kind/limit``, with its last score of a kind."""
        curve = curve_of(item.shift)
        asked = self.shifts if isinstance(self.shifts, Sequence) else (self.shifts,)
        alike = [x for x in self.scores if (x.epoch, curve_of(x.shift)) == (item.epoch, curve)]
        if len(alike) != sum(curve_of(shift) == curve for shift in asked):
            return {}
        for limit in limits(("", x.shift, x.score, x.operation) for x in alike).values():
            ends = {"limit_lower": limit.holds, "limit_upper": limit.breaks}
            found = {"limit": limit.reached, **ends}.items()
            start = f"{self.prefix}/{in_metric(curve)}"
            return {f"{start}/{name}": value for name, value in found if value is not None}
        return {}

    def _objection(self) -> str:
        """Words why the gate stops at the last epoch with a score; empty: it does not."""
        last = max((item.epoch for item in self.scores if item.score), default=None)
        if last is None:
            return "no epoch was scored"
        failed, undecided = [], []
        for item in (one for one in self.scores if one.epoch == last):
            where = f"under {item.shift}"
            if item.score is None:
                failed.append(f"{where}: {item.error.message if item.error else 'no score'}")
                continue
            try:
                outcome = item.score.gated(str(self.gate))
            except FailedPrecondition as error:
                return f"epoch {last}: {error.message}"
            if outcome is Outcome.UNDECIDED:
                undecided.append(f"epoch {last} {where}: {item.score.certainty}")
            elif outcome is not Outcome.PASSED:
                failed.append(f"{where}: {_numbers(item.score)}")
        if failed:
            return f"epoch {last} does not pass {'; '.join(failed)}"
        if undecided and self.undecided == "fail":
            return undecided[0]
        for sentence in undecided:
            warnings.warn(f"acpc: {sentence}; training is not stopped for it", stacklevel=3)
        return ""

    def _close(self) -> None:
        if self._scorer is not None:
            self._scorer.close()

    def _trouble(self, where: str, error: Exception) -> None:
        if self.raise_errors:
            raise error
        code = error.code if isinstance(error, AcpcError) else type(error).__name__
        warnings.warn(f"acpc: {where}: {code}: {error}", stacklevel=2)

    def __getstate__(self) -> dict[str, Any]:
        """Travels to spawned processes without its thread."""
        return {**self.__dict__, "_scorer": None}


def _one_of(name: str, given: bool | str, *known: str) -> str:
    """A choice; True is the point gate. Raises ArgumentError: It is none of them."""
    found = "point" if given is True else given
    if found not in known:
        wanted = " or ".join(filter(None, known))
        raise ArgumentError(name, f"found {given!r}, wanted {wanted}")
    return str(found)


def _numbers(score: Score) -> str:
    """The two numbers of a score beside what they must reach."""
    verdict = score.verdict
    ir, sr = cell(verdict.ir_relative, ".3g"), cell(score.checkpoint.sr, ".3g")
    limits = verdict.thresholds
    return f"relative IR {ir}, wanted at most {limits.ir:g}; SR {sr}, wanted at least {limits.sr:g}"
