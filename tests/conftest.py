"""Tiers, shared PostgreSQL, checked tensor shapes, and nothing left behind when the run ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

# Workers of one run share the machine, and so do the programs that they start: one thread each,
# and threads that wait let others run.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import hypothesis
import processes
import pytest
import structlog
import torch
from jaxtyping import install_import_hook
from postgres_server import PostgresServer, find_programs
from programs import missing
from waiting import wait_until

# The packages whose signatures carry shapes.
CHECKED = (
    "numerics",
    "models",
    "perturb",
    "data",
    "engine",
    "encoding",
    "interactive",
    "scoring",
    "studies",
)
install_import_hook(
    ["acpc.datasets", *(f"acpc_server.{package}" for package in CHECKED)], "beartype.beartype"
)
from served_fixtures import channel, client, server, world  # noqa: E402 - it imports packages

torch.set_num_threads(1)
processes.forks = True
# Rich's tracebacks take seconds over a tensor, and a thread that ends in one aborts the process.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)
# A run in the background inherits an ignored SIGINT, and so would every program that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No law has a time limit; a busy machine is not a fault.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=50, print_blob=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=500, print_blob=True)
hypothesis.settings.load_profile("quick")

TESTS = Path(__file__).parent
# Folders whose tests ask a server in a process of its own.
PROCESS_FOLDERS = ("contract", "e2e", "hostile")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test its tier: the marked one, process by folder, else unit."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if any(item.get_closest_marker(tier) for tier in ("nightly", "slow", "process")):
            continue
        item.add_marker("process" if folder in PROCESS_FOLDERS else "unit")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    processes.forbidden = item.get_closest_marker("unit") is not None


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Fails the run (at its last test) when a program or a thread outlives what started it."""
    before = set(threading.enumerate())
    # A pool of the module's own, which Python ends with the process.
    lasting = ("anchor-reader",)
    yield
    assert processes.left_running() == []

    def left() -> list[str]:
        return [
            thread.name
            for thread in threading.enumerate()
            if thread not in before and not thread.daemon and not thread.name.startswith(lasting)
        ]

    wait_until(lambda: not left(), "threads that go on: " + ", ".join(left()))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests; each takes a database of its own."""
    programs = find_programs()
    if programs is None:
        missing("postgres", "postgresql")
    with PostgresServer(programs) as server:
        yield server
