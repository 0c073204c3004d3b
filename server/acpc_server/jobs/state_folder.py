"""Locks a server's state folder and gives it a lasting name."""

from __future__ import annotations

import fcntl
import os
import socket
import uuid
from pathlib import Path

from acpc_server.errors import FailedPrecondition


class StateFolder:
    """The folder of one running server, and the name that goes with it.

    The name is made when the folder is first used and stays in it, so that a server that starts
    again on its folder, under whatever host name, is recognised.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None

    def claim(self) -> str:
        """Lock the folder for this process, until :meth:`release` or the process's end.

        Returns:
            The folder's name: ``<host name at first use>-<8 random digits>``.

        Raises:
            FailedPrecondition: Another process has it, or it cannot be written.
        """
        try:
            self._lock = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return self._name()
        except BlockingIOError as error:
            self.release()
            raise FailedPrecondition(
                f"another server runs on the state folder {self._path}; give each its own "
                "--state-dir",
                reason="STATE_FOLDER_TAKEN",
            ) from error
        except OSError as error:
            self.release()
            raise FailedPrecondition(
                f"cannot use the state folder {self._path} ({error.strerror}); choose another "
                "--state-dir"
            ) from error

    def _name(self) -> str:
        file = self._path / "name"
        if not file.exists():
            written = file.with_suffix(".new")
            written.write_text(f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}\n")
            written.replace(file)
        return file.read_text().strip()

    def release(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
