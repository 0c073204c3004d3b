"""Structured logs: one JSON object a line, or readable lines on a terminal."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import structlog
from structlog.typing import Processor

# The logger of a line for every call, and how long one waits for others that are written with it.
CALLS, GATHER_SECONDS = "acpc.rpc", 0.1
# Lines that wait at most; who adds more writes them itself, however slow that is.
MAX_LINES = 1000


class _Handler(logging.StreamHandler[Any]):
    """Writes each line at once, but those of calls together, a moment later.

    While few wait, no call waits for the disk. What cannot be written, as on a full disk, is lost;
    whoever logs goes on.
    """

    def __init__(self, render: Callable[..., str]) -> None:
        super().__init__(sys.stderr)
        self._render = render
        self._waiting: deque[dict[str, Any]] = deque()
        self._gathers = threading.Event()
        threading.Thread(target=self._write_gathered, name="log", daemon=True).start()

    def add(self, facts: dict[str, Any]) -> None:
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        line = {"event": "rpc", "logger": CALLS, "level": "info", "timestamp": at}
        self._waiting.append(facts | line)
        if not self._gathers.is_set():
            self._gathers.set()
        if len(self._waiting) > MAX_LINES:
            self.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line after those that wait."""
        self.flush()
        super().emit(record)

    def flush(self) -> None:
        """Write what waits; returns once it is written."""
        with self.lock or contextlib.nullcontext():
            while self._waiting:
                line = self._render(None, "info", self._waiting.popleft())
                with contextlib.suppress(OSError, ValueError):
                    self.stream.write(f"{line}{self.terminator}")
            with contextlib.suppress(OSError, ValueError):
                super().flush()

    def _write_gathered(self) -> None:
        """While calls come, wake by the clock: whoever adds a line wakes nobody."""
        while self._gathers.wait():
            self._gathers.clear()
            time.sleep(GATHER_SECONDS)
            with contextlib.suppress(Exception):  # of memory: without this thread lines wait
                self.flush()


def log_call(facts: dict[str, Any]) -> None:
    """Log a call that has ended: through structlog, unless a server has set its logs up."""
    handler = logging.root.handlers[0] if logging.root.handlers else None
    if not isinstance(handler, _Handler):
        structlog.get_logger(CALLS).info("rpc", **facts)
    elif logging.root.level <= logging.INFO:
        handler.add(facts)


def configure_logs(level: str, style: str) -> None:
    """Send structlog, the standard library's loggers and warnings to stderr in one format."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Not Rich's traceback, which shows what variables held: tokens, and frames number by number.
    text = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    render: Any = structlog.processors.JSONRenderer() if style == "json" else text
    last = [structlog.processors.format_exc_info, render] if style == "json" else [render]
    handler = _Handler(render)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
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
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
