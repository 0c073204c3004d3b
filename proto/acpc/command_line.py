"""Runs a command line so that what the system refuses it is one line, and no traceback."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast


class _NotTaken(Exception):
    """Stdout has failed; no OSError, which a command may take for one of its own files."""


class _Stdout(io.TextIOWrapper):
    """Stdout with an error of its own; after the first it drops what it is given."""

    def __init__(self, plain: io.TextIOWrapper) -> None:
        modes = plain.line_buffering, plain.write_through
        # What the encoding lacks, as a file's name that is no UTF-8, is escaped.
        errors = "backslashreplace" if plain.errors == "strict" else plain.errors
        super().__init__(plain.buffer, plain.encoding, errors, None, *modes)

    def write(self, text: str, /) -> int:
        """Writes text."""
        with self._named():
            return 0 if text == "" else super().write(text)

    def flush(self) -> None:
        """Writes what is held back."""
        with self._named():
            super().flush()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # What is held back would fail once more when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            raise _NotTaken(error.errno, error.strerror) from None


@contextmanager
def reported(report: Callable[[str], object]) -> Iterator[None]:
    """Flushes what the block prints; where stdout or a file fails: ``report``, and exit code 1.

    A reader that leaves, as head does, has what it wants: nothing is reported.
    """
    # A closed one is opened for reading alone, so that a write to it fails.
    plain = sys.stdout or open(os.dup2(os.open(os.devnull, os.O_RDONLY), 1), "w")  # noqa: SIM115, PTH123
    sys.stdout = guarded = _Stdout(cast(io.TextIOWrapper, plain))
    try:
        try:
            yield
        finally:
            guarded.flush()
    except _NotTaken as error:
        number, why = error.args
        if number != errno.EPIPE:
            report(f"stdout: {why}")
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        report(f"{error.filename}: {error.strerror}")
        sys.exit(1)
    finally:
        sys.stdout = plain
        guarded.detach()
