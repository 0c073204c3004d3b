"""Runs a command line so that what the system refuses it is one line, and no traceback."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def reported(report: Callable[[str], object]) -> Iterator[None]:
    """Flushes what the block prints; where stdout or a file fails: ``report``, and exit code 1.

    A reader that leaves, as head does, has what it wants: nothing is reported.
    """
    if sys.stdout is None:  # a closed one is opened for reading alone: a write to it fails
        sys.stdout = open(os.dup2(os.open(os.devnull, os.O_RDONLY), 1), "w")  # noqa: SIM115, PTH123
    out: Any = sys.stdout
    if out.errors == "strict":  # what the encoding lacks, as a file's name that is no UTF-8
        out.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            out.flush()
    except OSError as error:
        if error.errno is None:
            raise
        if error.filename is None:  # of stdout: what it holds back would fail when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        if error.errno != errno.EPIPE:
            report(f"{error.filename or 'stdout'}: {error.strerror}")
        sys.exit(1)
