"""Shows the progress of a job on one line of stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable

from acpc_client.results.answers import Operation

_WIDTH = 30
OnProgress = Callable[[Operation], object]


def listener(progress: bool | OnProgress) -> OnProgress:
    """Chooses what each change of a job calls: a bar, the caller's function, or nothing."""
    if callable(progress):
        return progress
    if not progress:
        return lambda _: None
    return _draw


def _draw(operation: Operation) -> None:
    filled = "#" * round(_WIDTH * _share(operation))
    text = f"[{filled:<{_WIDTH}}] {_text(operation)}"
    sys.stderr.write(f"\r{text:<79}" + ("\n" if operation.done else ""))
    sys.stderr.flush()


def _share(operation: Operation) -> float:
    now = operation.progress
    return now.completed / now.total if now.total else float(operation.done)


def _text(operation: Operation) -> str:
    now = operation.progress
    ended = operation.state.name.lower() if operation.error else "done"
    what = ended if operation.done else now.phase or "waiting"
    left = f", {now.seconds_left:.0f} s left" if now.seconds_left and not operation.done else ""
    return f"{now.completed}/{now.total} {what}{left}"
