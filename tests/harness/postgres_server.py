"""A real PostgreSQL server of the tests' own, in a folder that goes with it."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

import processes
import psycopg
from server_process import free_port
from waiting import wait_until

ROLE = "acpc"


def find_programs() -> Path | None:
    """The folder with ``initdb`` and ``postgres``, newest release first; None without one."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).parent] if on_path else []
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    folders += sorted((p.parent for p in installed), key=lambda p: int(p.parent.name), reverse=True)
    return folders[0] if folders else None


class PostgresServer:
    """One server on a free port of loopback. It refuses to run as root, and so does not.

    Args:
        programs: Folder with ``initdb`` and ``postgres``.
        settings: What differs from PostgreSQL's and the tests' defaults, ``name=value``.
    """

    def __init__(self, programs: Path, *settings: str) -> None:
        self._programs = programs
        self._settings = [word for setting in settings for word in ("-c", setting)]
        self._folder = Path(tempfile.mkdtemp(prefix="acpc-postgres-"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self.port = free_port()

    def start(self) -> Self:
        """Start, on what an earlier start has left, and return once it answers."""
        data = self._folder / "data"
        if not data.exists():
            self._call("initdb", f"--pgdata={data}", f"--username={ROLE}", "--auth=trust",
                       "--no-sync", "--encoding=UTF8", "--locale=C")  # fmt: skip
        with (self._folder / "log").open("ab") as log:
            self._process = processes.start(
                [self._programs / "postgres", "-D", data, "-p", str(self.port),
                 "-k", self._folder, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
                 *self._settings],
                stdout=log, stderr=log, cwd=self._folder, **self._as,
            )  # fmt: skip
        try:
            wait_until(self._answers, "PostgreSQL did not start")
        except BaseException:
            print((self._folder / "log").read_text())
            self.stop()
            raise
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _answers(self) -> bool:
        assert self._process.poll() is None, "PostgreSQL has ended"
        try:
            psycopg.connect(self._url("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """Stop at once, breaking every connection; the data stay for the next start."""
        if self._process is not None and self._process.poll() is None:
            data = self._folder / "data"
            self._call("pg_ctl", "stop", f"--pgdata={data}", "--mode=immediate", "--silent")
        if self._process is not None:
            processes.end(self._process)

    def new_database(self) -> str:
        self._databases += 1
        name = f"jobs_{self._databases}"
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self._url(name)

    def _url(self, database: str) -> str:
        return f"postgresql://{ROLE}@127.0.0.1:{self.port}/{database}"

    def _call(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, *arguments],
            check=True, capture_output=True, cwd=self._folder, **self._as,
        )  # fmt: skip

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
