"""What the examples share: a real server in a process of its own, its datasets, `acpc`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

HERE = Path(__file__).resolve().parent
WORLD = HERE / "two_room"
PROGRAM = Path(sys.executable).with_name("acpc-server")


def dataset_folder(out: Path, name: str = "two-room", *options: str) -> Path:
    """The folder of an example's datasets, with this one in it.

    A dataset is written once: one that changes under a sweep makes its cells another question.
    """
    folder = out / "datasets"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(WORLD / "two-room.yaml", folder)
    path = folder / f"{name}.h5"
    if not path.exists():
        part = path.with_suffix(".part")  # a file of this name is whole, whatever interrupts us
        command = [sys.executable, str(WORLD / "dataset.py"), "--out", str(part), *options]
        subprocess.run(command, check=True)  # noqa: S603  our own script
        part.replace(path)
    return folder


def acpc(address: str, *arguments: str, out: TextIO | None = None) -> int:
    """Runs a command of `acpc` against the server, its answer to ``out``; its exit code."""
    command = [str(PROGRAM.with_name("acpc")), *arguments]
    given = os.environ | {"ACPC_TARGET": address}
    done = subprocess.run(command, env=given, stdout=out, check=False)  # noqa: S603  our own
    return done.returncode


@contextmanager
def running_server(
    checkpoints: Path,
    datasets: Path,
    state: Path,
    *,
    program: Path = PROGRAM,
    environment: Mapping[str, str] = os.environ,
) -> Iterator[str]:
    """A real server in a process of its own; yields its address. Its log lies beside ``state``."""
    log_path = state.parent / "server.log"
    command = [
        str(program),
        "serve",
        f"--checkpoint-root={checkpoints}",
        f"--dataset-root={datasets}",
        f"--state-dir={state}",
        "--port=0",
        "--metrics-port=0",
    ]
    given = {name: v for name, v in environment.items() if not name.startswith("ACPC_")}
    # A file, not a pipe: nobody reads along, and a full pipe would stop the server.
    with log_path.open("w") as log:
        server = subprocess.Popen(command, stderr=log, env=given)  # noqa: S603  our own
    try:
        yield _await_address(server, log_path)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(timeout=60)
        except BaseException:
            server.kill()
            server.wait()
            raise


def _await_address(server: subprocess.Popen[bytes], log_path: Path) -> str:
    with log_path.open() as log:
        while server.poll() is None:
            for line in iter(log.readline, ""):
                event = json.loads(line) if line.startswith("{") and line.endswith("}\n") else {}
                if event.get("event") == "serving":
                    return f"127.0.0.1:{event['port']}"
            time.sleep(0.05)
    raise SystemExit(f"the server did not start; see {log_path}")
