"""Shows the progress of a job: on one line of stderr, or as a bar in a notebook's cell."""

from __future__ import annotations

import html
import importlib
import sys
from collections.abc import Callable
from typing import Any

from acpc_client.results.answers import Operation

_WIDTH = 30
OnProgress = Callable[[Operation], object]


def listener(progress: bool | OnProgress) -> OnProgress:
    """Chooses what each change of a job calls: a bar, the caller's function, or nothing."""
    if callable(progress):
        return progress
    if not progress:
        return lambda _: None
    return _Widget() if _in_notebook() else _draw


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this program; IPython in a terminal has no kernel."""
    ipython = sys.modules.get("IPython")
    return getattr(ipython and ipython.get_ipython(), "kernel", None) is not None


class _Widget:
    """A bar in the output of a cell, drawn again in its place."""

    def __init__(self) -> None:
        self._handle: Any = None

    def __call__(self, operation: Operation) -> None:
        text, done = _text(operation), f"{_share(operation):.4f}"
        bar = f'<progress value="{done}" aria-label="progress"></progress> {html.escape(text)}'
        drawn = {"text/plain": text, "text/html": bar}
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(drawn, raw=True, display_id=True)
        else:
            self._handle.update(drawn, raw=True)


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
