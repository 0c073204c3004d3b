"""Names a host: the folder it locks, and its row in the table of the hosts of a record."""

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from acpc_server.errors import FailedPrecondition
from acpc_server.jobs.kind import Progress
from acpc_server.jobs.record import Record

# Hosts report the progress of their jobs about once a second.
REPORT_SECONDS = 1.0


class StateFolder:
    """The folder of one running server, and the name that goes with it.

    The name is made when the folder is first used and stays in it, so that a server that starts
    again on its folder, under whatever host name, is recognised.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None

    def claim(self) -> str:
        """Lock the folder for this process; return its name ``<first host name>-<8 digits>``.

        FailedPrecondition: another process has it, or it cannot be written.
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
        if not file.exists() or not file.read_text().strip():  # as a power cut may leave it
            written = file.with_suffix(".new")
            written.write_text(f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}\n")
            written.replace(file)
        return file.read_text().strip()

    def release(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@dataclass(frozen=True)
class Host:
    """One server that shares the job record."""

    executor_id: str  # its name among them
    session: str  # the process that has the name now; empty after an orderly stop
    folder: str  # identity of the process's state folder
    beat: int = 0  # grows for as long as the process lives
    running: str = "{}"  # progress of its jobs, JSON
    about: str = "{}"  # since when, version and device, JSON


class Hosts:
    """The table of the hosts of a record, beside DBOS's own."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._reading = threading.Lock()
        self._progress: dict[str, Progress] = {}
        self._read_at = -REPORT_SECONDS
        self._hosts = sa.Table(
            "acpc_hosts",
            record.own_tables,
            sa.Column("executor_id", sa.Text, primary_key=True),
            sa.Column("session", sa.Text, nullable=False),
            sa.Column("folder", sa.Text, nullable=False),
            sa.Column("beat", sa.BigInteger, nullable=False),
            sa.Column("running", sa.Text, nullable=False),
            sa.Column("about", sa.Text, nullable=False, server_default="{}"),
        )

    def read(self) -> dict[str, Host]:
        """Return every host on record, by its executor id."""
        with self.record.engine.begin() as connection:
            rows = connection.execute(sa.select(self._hosts)).mappings()
            return {row["executor_id"]: Host(**row) for row in rows}

    def progress(self) -> dict[str, Progress]:
        """Return progress of the jobs of every host, read at most once a second."""
        with self._reading:
            if time.monotonic() - self._read_at >= REPORT_SECONDS:
                self._progress = {
                    job_id: Progress.at(**progress)
                    for host in self.read().values()
                    for job_id, progress in json.loads(host.running).items()
                }
                self._read_at = time.monotonic()
            return self._progress

    def enter(self, host: Host, found: Host | None) -> bool:
        """Replace the row ``found`` by a host; False when the row has changed since."""
        if found is not None:
            return self._change(self._is(found), asdict(host))
        try:
            with self.record.engine.begin() as connection:
                connection.execute(sa.insert(self._hosts).values(asdict(host)))
        except IntegrityError:
            return False
        return True

    def beat(self, host: Host, running: str) -> bool:
        """Show that the host lives; False when its row is gone, or another process's."""
        values = {"beat": self._hosts.c.beat + 1, "running": running}
        return self._change(self._held_by(host), values)

    def leave(self, host: Host) -> bool:
        """Mark the host as stopped in an orderly way: its jobs are free at once."""
        return self._change(self._held_by(host), {"session": "", "running": "{}"})

    def forget(self, host: Host) -> None:
        """Remove a host that has not moved since it was read."""
        with self.record.engine.begin() as connection:
            connection.execute(sa.delete(self._hosts).where(self._is(host)))

    def _held_by(self, host: Host) -> sa.ColumnElement[bool]:
        row = self._hosts.c
        return (row.executor_id == host.executor_id) & (row.session == host.session)

    def _is(self, host: Host) -> sa.ColumnElement[bool]:
        return self._held_by(host) & (self._hosts.c.beat == host.beat)

    def _change(self, where: sa.ColumnElement[bool], values: Mapping[str, object]) -> bool:
        with self.record.engine.begin() as connection:
            changed = connection.execute(sa.update(self._hosts).where(where).values(values))
            return changed.rowcount == 1
