"""Structured logs: one JSON object a line, or readable lines on a terminal."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, ProcessorReturnValue

# The logger of a line for every call.
CALLS = "acpc.rpc"
# How long such a line waits for others that are written with it.
GATHER_SECONDS = 0.1
# Lines that wait at most; who adds more writes them itself, however slow that is.
MAX_LINES = 1000


class _GatheringHandler(logging.Handler):
    """Writes the lines of many calls together: none waits for another thread or for the disk.

    All other lines, and warnings and errors, are written at once after those that wait. ``render``
    makes a line of the event of a call, once it is written.
    """

    def __init__(self, stream: TextIO, render: Callable[[EventDict], str]) -> None:
        super().__init__()
        self._stream = stream
        self._render = render
        self._lines: deque[str | EventDict] = deque()
        self._writing = threading.Lock()  # so that lines never mix
        self._gathers = threading.Event()
        threading.Thread(target=self._write_gathered, name="log", daemon=True).start()

    def handle(self, record: logging.LogRecord) -> bool:
        """Take a record, without the lock that the standard library's handlers hold meanwhile."""
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record."""
        try:
            self._lines.append(self.format(record) + "\n")
        except Exception:  # noqa: BLE001 - as the standard library's do
            self.handleError(record)
        self.flush()

    def finish(self, logger: Any, method: str, event: EventDict) -> ProcessorReturnValue:  # noqa: ANN401
        """Take the event of a call, without a record; the last of structlog's processors."""
        if logger.name != CALLS or method != "info":
            return structlog.stdlib.ProcessorFormatter.wrap_for_formatter(logger, method, event)
        self._lines.append(event)
        if len(self._lines) > MAX_LINES:
            self.flush()
        elif not self._gathers.is_set():
            self._gathers.set()
        raise structlog.DropEvent

    def flush(self) -> None:
        """Write what waits; returns once it is written."""
        with self._writing, contextlib.suppress(OSError, ValueError):
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            self._stream.write("".join(map(self._text, lines)))
            self._stream.flush()

    def _text(self, line: str | EventDict) -> str:
        """Render one line; where that fails, return the error and the line as they are."""
        if isinstance(line, str):
            return line
        try:
            return f"{self._render(line)}\n"
        except Exception as error:  # noqa: BLE001 - in the thread that writes all others
            return f"{error!r}: {line!r}\n"

    def _write_gathered(self) -> None:
        """While calls come, wake by the clock: whoever adds a line wakes nobody."""
        while self._gathers.wait():
            time.sleep(GATHER_SECONDS)
            if self._lines:
                with contextlib.suppress(Exception):  # of memory: without this thread lines wait
                    self.flush()
                continue
            self._gathers.clear()
            if self._lines:  # added in between, by a thread that saw it set
                self._gathers.set()


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
    handler = _GatheringHandler(sys.stderr, lambda event: str(renderer[-1](None, "info", event)))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    # Whoever wants fewer lines still wants to know who changed what.
    logging.getLogger("acpc.access").setLevel(logging.INFO)
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            handler.finish,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
