"""What DBOS does beside its work, and has no settings for: its log, and its patience."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import Any

# While the record is away, what waits for it tries again after at most this. DBOS's own rests grow
# to a minute and a half, most of which would pass after the record is back.
RETRY_SECONDS = 2.0


def retry_soon(module: Any) -> None:  # noqa: ANN401
    """Bound the rests between two tries to reach the record, which ``module`` takes."""

    def rest(seconds: float) -> None:
        time.sleep(min(seconds, RETRY_SECONDS))

    module.time = SimpleNamespace(**{**vars(time), "sleep": rest})


def log_as_server(outcome: type[Exception]) -> None:
    """Have its lines in the server's log; without those of jobs that fail, by an ``outcome``."""

    def is_fault(line: logging.LogRecord) -> bool:
        failed = line.exc_info and isinstance(line.exc_info[1], outcome)
        taken_back = line.getMessage().endswith("Workflow status not found")  # a task, meanwhile
        return not (failed or taken_back)

    library = logging.getLogger("dbos")
    library.handlers.clear()
    library.propagate = True
    library.addFilter(is_fault)
