"""Structured logs: one JSON object a line, or readable lines on a terminal."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import sys
import threading
import time
from collections import deque

import structlog
from structlog.typing import Processor

# The logger of a line for every call.
CALLS = "acpc.rpc"
# How long such a line waits for others that are written with it.
GATHER_SECONDS = 0.1
# Lines that wait at most; who adds more writes them itself, however slow that is.
MAX_LINES = 1000


class _GatheringHandler(logging.handlers.MemoryHandler):
    """Writes the lines of many calls together: none waits for another thread or for the disk.

    All other lines, and warnings and errors, are written at once after those that wait.
    """

    def __init__(self, target: logging.Handler) -> None:
        super().__init__(MAX_LINES, logging.WARNING, target)
        self.buffer: deque[logging.LogRecord] = deque()  # type: ignore[assignment]
        self._writing = threading.Lock()  # so that lines stay in order
        self._gathers = threading.Event()
        threading.Thread(target=self._write_gathered, name="log", daemon=True).start()

    def handle(self, record: logging.LogRecord) -> bool:
        """Take a record, without the lock that the standard library's handlers hold meanwhile."""
        self.emit(record)
        return True

    def shouldFlush(self, record: logging.LogRecord) -> bool:
        """Whether a line may not wait."""
        if not self._gathers.is_set():
            self._gathers.set()
        return record.name != CALLS or super().shouldFlush(record)

    def flush(self) -> None:
        """Write what waits; returns once it is written."""
        with self._writing:
            while self.buffer and self.target is not None:
                self.target.handle(self.buffer.popleft())

    def _write_gathered(self) -> None:
        """While calls come, wake by the clock: whoever adds a line wakes nobody."""
        while self._gathers.wait():
            self._gathers.clear()
            time.sleep(GATHER_SECONDS)
            with contextlib.suppress(Exception):  # of memory: without this thread lines wait
                self.flush()


def configure_logs(level: str, style: str) -> None:
    """Send structlog, the standard library's loggers and warnings to stderr in one format."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if style == "json"
        else [
            # Not Rich's, which shows what variables held: tokens, and frames number by number.
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    )
    written = logging.StreamHandler(sys.stderr)
    written.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    logging.basicConfig(handlers=[_GatheringHandler(written)], level=level, force=True)
    # Whoever wants fewer lines still wants to know who changed what.
    logging.getLogger("acpc.access").setLevel(logging.INFO)
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
