"""Tests live planning for drift: one test for each digest of a checkpoint, and perturbation.

A planning session is one observation, by the first pool and the first draw of each perturbation,
so that neither a planner's iterations nor its draws count as more than one. References are kept in
a file; tests start again with the process.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import structlog
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from acpc_server.errors import FailedPrecondition
from acpc_server.evidence import DriftTerms, DriftWatch, Reference, clipped
from acpc_server.observe import Metrics, Shift

log = structlog.get_logger("acpc.drift")

# Digests remembered of one checkpoint under one perturbation, the newest: a folder has few.
MAX_DIGESTS = 8
# Pause before references that could not be written are tried again: each try costs an observation.
AGAIN_SECONDS = 60.0


class Signals(NamedTuple):
    """One session's observation, each value at least 0."""

    encoder_shift: float  # distance of the view's latents from the history's
    acpc: float  # of the first pool, the 0.90 quantile of its candidates
    margin: float  # how much of the clean gap the bounds take: 1 less the top-1 margin in gaps


Values = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1)]


class _Stored(BaseModel):
    """One reference in the file."""

    model_config = ConfigDict(extra="forbid")
    checkpoint: str
    digest: str
    perturbation: str
    spacing: int = Field(ge=1)
    encoder_shift: Values
    acpc: Values
    margin: Values

    @model_validator(mode="after")
    def _rectangular(self) -> _Stored:
        if not len(self.encoder_shift) == len(self.acpc) == len(self.margin):
            raise ValueError("the signals differ in their number of values")
        return self

    @property
    def shift(self) -> Shift:
        return Shift(self.checkpoint, self.perturbation)

    def reference(self) -> Reference:
        columns = [[clipped(value) for value in getattr(self, name)] for name in Signals._fields]
        return Reference(np.array(columns).T, self.spacing)


_FILE = TypeAdapter(list[_Stored])


@dataclass
class _Test:
    """The test of one digest, and how many observations others of its shift have had since."""

    watch: DriftWatch
    others: int = 0


class DriftMonitor:
    """Every test of a server, and the file of their references, which need not exist yet.

    Raises FailedPrecondition when the file cannot be read.
    """

    def __init__(self, metrics: Metrics, terms: DriftTerms, file: Path) -> None:
        self._metrics = metrics
        self._terms = terms
        self._file = file
        self._recorded = _read(file)
        self._unkept: list[_Stored] = []  # what the file lacks since it could not be written
        self._next_try = 0.0  # monotonic
        for found in self._recorded:
            metrics.shift(*found.shift)  # these have series, whoever else comes first
        self._tests: dict[Shift, dict[str, _Test]] = {}  # by digest, the newest last
        self._lock = threading.Lock()

    def observe(self, shift: Shift, digest: str, signals: Signals) -> None:
        """Observe a session on the checkpoint with a digest; labels of several have no test."""
        if shift.shared:
            return
        with self._lock:
            watch = self._watch(shift, digest)
            known, alarms = watch.reference, list(watch.alarms)
            if not watch.observe(signals):
                return
            part = "test" if known else "reference"
            self._metrics.drift_observations.labels(*shift, part).inc()
            if known is None and watch.reference is not None:
                self._record(shift, digest, watch.reference)
            if self._unkept and time.monotonic() >= self._next_try:
                self._keep()
            for name, before, alarm, evidence in zip(
                Signals._fields, alarms, watch.alarms, watch.log_evidence, strict=True
            ):
                if alarm and not before:
                    log.warning("drift", **shift._asdict(), signal=name, log_evidence=evidence)
            self._show(shift, digest)

    def _watch(self, shift: Shift, digest: str) -> DriftWatch:
        """Return the test of this checkpoint's weights; other weights have another reference."""
        tests = self._tests.setdefault(shift, {})
        test = tests.pop(digest, None)
        if test is None:
            found = [one for one in self._recorded if (one.shift, one.digest) == (shift, digest)]
            reference = found[-1].reference() if found else None
            test = _Test(DriftWatch(self._terms, len(Signals._fields), reference))
        tests[digest] = test
        if len(tests) > MAX_DIGESTS:
            del tests[next(iter(tests))]
        return test.watch

    def _show(self, shift: Shift, digest: str) -> None:
        """Set the series of a shift to the highest of its digests still in use."""
        tests = self._tests[shift]
        for test in tests.values():
            test.others += 1
        tests[digest].others = 0
        watches = [one.watch for one in tests.values() if one.others < self._terms.observations]
        for signal, name in enumerate(Signals._fields):
            evidence = max(watch.log_evidence[signal] for watch in watches)
            self._metrics.drift_evidence.labels(*shift, name).set(evidence)
            alarm = any(watch.alarms[signal] for watch in watches)
            self._metrics.drift_alarm.labels(*shift, name).set(alarm)

    def _record(self, shift: Shift, digest: str, reference: Reference) -> None:
        columns = dict(zip(Signals._fields, reference.values.T.tolist(), strict=True))
        new = _Stored(digest=digest, spacing=reference.spacing, **shift._asdict(), **columns)
        self._recorded = _with(self._recorded, new)
        self._unkept = _with(self._unkept, new)
        log.info("drift_reference", **shift._asdict(), spacing=reference.spacing)

    def _keep(self) -> None:
        """Write what the file lacks; what cannot be written is tried again after a while."""
        self._next_try = time.monotonic() + AGAIN_SECONDS
        # Servers may share the file, also such as have the same process id in their containers.
        part = self._file.with_name(f".{self._file.name}.{uuid.uuid4().hex}")
        try:
            entries = _read(self._file)
            for new in self._unkept:
                entries = _with(entries, new)
            with part.open("wb") as file:
                file.write(_FILE.dump_json(entries, indent=1))
                file.flush()
                os.fsync(file.fileno())  # a power cut must leave a file that can be read
            part.replace(self._file)
            self._unkept, self._next_try = [], 0.0
        except (OSError, FailedPrecondition) as error:
            log.warning("drift_reference_not_kept", file=str(self._file), error=str(error))
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)  # half a file, where the volume is full


def _with(entries: list[_Stored], new: _Stored) -> list[_Stored]:
    """Put a reference last, in the place of its digest's, and forget its shift's oldest."""
    same = [one for one in entries if one.shift == new.shift and one.digest != new.digest]
    others = [one for one in entries if one.shift != new.shift]
    return [*others, *same[1 - MAX_DIGESTS :], new]


def _read(file: Path) -> list[_Stored]:
    try:
        return _FILE.validate_json(file.read_bytes()) if file.exists() else []
    except OSError as error:
        raise FailedPrecondition(f"cannot read {file} ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise FailedPrecondition(
            f"{file} is no file of drift references: {path}: {first['msg']}; remove it to have "
            "references collected again"
        ) from error
