"""The audit log's own file: a line of JSON each, turned over by size, and by whoever renames it."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

import structlog

from acpc_server.observe.metrics import Metrics

log = structlog.get_logger("acpc.observe")
AUDIT = "acpc.audit"


class AuditFile(logging.Handler):
    """Writes audit lines to a file of its own; several processes may write to one.

    At ``most_bytes`` it becomes ``<name>.1``, that one ``.2``, and the last of ``kept`` goes; of
    several writers, each other one may add a line to a file that is already full. A file that was
    moved away is opened again. What cannot be written is counted; serving goes on: every line is
    in the log as well. OSError: it cannot be opened.
    """

    def __init__(self, path: Path, most_bytes: int, kept: int, metrics: Metrics) -> None:
        super().__init__()
        self._path, self._most, self._kept = path, most_bytes, kept
        self._unwritten = metrics.audit_unwritten
        self._failing = self._torn = False
        self._file = self._opened()
        self.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                processors=[
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.JSONRenderer(),
                ]
            )
        )
        logging.getLogger(AUDIT).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        line = self.format(record).encode() + b"\n"
        try:
            self._turn_over(len(line))
            whole = b"\n" * self._torn + line
            self._torn = 0 < os.write(self._file, whole) < len(whole)
            if self._torn:
                raise OSError("only a part was written")
        except OSError as error:
            self._unwritten.inc()
            if not self._failing:
                log.error("audit_file_failed", file=str(self._path), error=str(error))
            self._failing = True
            return
        if self._failing:
            log.info("audit_file_back", file=str(self._path))
        self._failing = False

    def close(self) -> None:
        """Write no more."""
        logging.getLogger(AUDIT).removeHandler(self)
        self.acquire()
        try:  # a call that ends now may have found this handler, and its number may be another's
            os.close(self._file)
            self._file = -1
        finally:
            self.release()
        super().close()

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def _turn_over(self, more: int) -> None:
        if not self._ours():
            self._reopen()
        if os.fstat(self._file).st_size + more <= self._most:
            return
        fcntl.flock(self._file, fcntl.LOCK_EX)  # one process renames it, the others reopen
        try:
            if self._ours():
                for number in range(self._kept - 1, 0, -1):
                    older = self._named(number)
                    if older.exists():
                        older.replace(self._named(number + 1))
                self._path.replace(self._named(1))
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._reopen()

    def _named(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _ours(self) -> bool:
        """Whether the open file is still the one of that name."""
        try:
            return os.path.samestat(os.fstat(self._file), self._path.stat())
        except FileNotFoundError:
            return False

    def _reopen(self) -> None:
        fresh = self._opened()
        os.close(self._file)
        self._file = fresh
