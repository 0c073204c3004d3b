"""Runs every tensor annotation of the server as a check; lends a PostgreSQL server."""

import os
import signal
from collections.abc import Iterator

import pytest
import torch
from jaxtyping import install_import_hook
from postgres_server import PostgresServer, find_programs

# The rooms whose signatures carry shapes.
ROOMS = (
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

install_import_hook([f"acpc_server.{room}" for room in ROOMS], "beartype.beartype")
torch.set_num_threads(1)
# A run in the background inherits an ignored SIGINT, and so would every program that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests; each takes a database of its own."""
    programs = find_programs()
    if programs is None:
        needed = "postgres" in os.environ.get("ACPC_TEST_REQUIRE", "").split(",")
        (pytest.fail if needed else pytest.skip)("no PostgreSQL: apt-get install postgresql")
    with PostgresServer(programs) as server:
        yield server
