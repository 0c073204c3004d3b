"""Says how to install the libraries of an optional part, and starts commands that need them."""

from __future__ import annotations

import functools
import importlib
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_OURS = ("acpc", "acpc_client", "acpc_lab", "acpc_server")


@functools.cache  # reading the version takes milliseconds, and every reader of a file asks
def install_line(extra: str) -> str:
    """Words how to install ``acpc[extra]``; by a path, since no package index has the name."""
    from importlib import metadata  # noqa: PLC0415 - an error's, and it takes long to import

    wheel = f"acpc-{metadata.version('acpc')}-py3-none-any.whl"
    return f"pip install '.[{extra}]' in a checkout of acpc, or pip install '{wheel}[{extra}]'"


@contextmanager
def explained(command: str, extra: str) -> Iterator[None]:
    """Ends with code 2, after one sentence on stderr, where a library of the extra is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in _OURS:
            raise
        print(f"{command} needs {missing}: {install_line(extra)}", file=sys.stderr)
        raise SystemExit(2) from None


def load_command(command: str, module: str, extra: str) -> ModuleType:
    """Imports the module behind a command.

    Raises SystemExit: A library of the extra is not installed (:func:`explained`).
    """
    # An interrupt meanwhile ends the process as any program: it has nothing to say yet, and
    # libraries may swallow an exception of their imports.
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with explained(command, extra):
            return importlib.import_module(module)
    finally:
        if heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)
