"""Shows the progress of a job on one line of stderr, in a terminal and in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable

from acpc_client.results.operations import Operation

_WIDTH = 30
OnProgress = Callable[[Operation], object]


def listener(progress: bool | OnProgress) -> OnProgress:
    """What is told each change of a job: a bar, the caller's own, or nobody."""
    if callable(progress):
        return progress
    return _draw if progress else lambda _: None


def _draw(operation: Operation) -> None:
    now = operation.progress
    done = now.completed / now.total if now.total else float(operation.done)
    filled = "#" * round(_WIDTH * done)
    ended = operation.state.name.lower() if operation.error else "done"
    what = ended if operation.done else now.phase or "waiting"
    left = f", {now.seconds_left:.0f} s left" if now.seconds_left and not operation.done else ""
    text = f"[{filled:<{_WIDTH}}] {now.completed}/{now.total} {what}{left}"
    sys.stderr.write(f"\r{text:<79}" + ("\n" if operation.done else ""))
    sys.stderr.flush()
