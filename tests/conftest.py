"""Tiers, shared PostgreSQL, checked tensor shapes, and nothing left behind when the run ends."""

import functools
import gc
import logging
import os
import runpy
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

# Workers of one run share the machine, and so do the programs that they start: one thread each,
# and threads that wait let others run.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Answers of a server that begins to compile would change their last bits, and the machine is busy.
os.environ.setdefault("ACPC_COMPILE", "off")

import hypothesis
import processes
import pytest
import structlog
import tiers
from filelock import FileLock
from postgres_server import PostgresServer, find_programs
from programs import missing
from waiting import wait_until

# The packages whose signatures carry shapes.
CHECKED = (
    "numerics", "models", "perturb", "data", "engine", "encoding", "interactive", "scoring",
    "studies",
)  # fmt: skip
BUILD = Path(__file__).parents[1] / "build"
# Files that take longest, which begin first.
LONGEST = (
    "test_demos", "test_compiled_steps", "test_followers", "test_study_agreement",
    "test_many_hosts", "test_durable_jobs", "test_attacks", "test_score_agreement",
    "test_pair_agreement", "test_other_callers", "test_stored_results",
    "test_releases", "test_fuzzer", "test_hostile_objects", "test_readme", "test_study_bundle",
    "test_sick_hosts", "test_job_changes", "test_two_room_rounding", "test_fit",
    "test_certificate_million", "test_camera_perturbations", "test_objective_extremes",
)  # fmt: skip
# The blocking client is in no commit: a checkout may be fresh, or newer than what it has.
runpy.run_path(str(BUILD.parent / "client/unasync.py"), run_name="__main__")
# On a fresh checkout one worker compiles what all import, and the others wait for it.
alone = ExitStack()
gc.disable()  # while tests are collected: nothing that is imported goes away
processes.forks = True
# gRPC's noise where one process has several event loops (github.com/grpc/grpc, #25364): all are
# woken for an event, and those that come late find nothing to read.
logging.getLogger("asyncio").addFilter(
    lambda line: not (line.exc_info and isinstance(line.exc_info[1], BlockingIOError))
)
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
hypothesis.settings.register_profile("quick", deadline=None, max_examples=20, print_blob=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=500, print_blob=True)
hypothesis.settings.load_profile("quick")


def _compiled(config: pytest.Config) -> Path:
    """A file that is there once tests of these tiers were collected, and all that they import."""
    return BUILD / f"compiled-{'-'.join(sorted(tiers.selected(config.option.markexpr)))}"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Check shapes while unit tests run: the other tiers ask servers, which check nothing.

    It is called before the conftest.py of a folder within is imported, which may import a package.
    """
    from shapes import check_shapes

    given = pluginmanager.get_plugin("pytestconfig").known_args_namespace
    if "unit" in tiers.selected(given.markexpr):
        check_shapes(("acpc.datasets", *(f"acpc_server.{package}" for package in CHECKED)))


def pytest_configure(config: pytest.Config) -> None:
    """Make ready for tests in this process."""
    if getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput"):
        return  # its workers run the tests, and start the sooner
    if hasattr(config, "workerinput") and not _compiled(config).exists():
        BUILD.mkdir(exist_ok=True)
        alone.enter_context(FileLock(BUILD / "compiling"))
        if _compiled(config).exists():
            alone.close()
    import torch
    import typer.testing

    torch.set_num_threads(1)
    # Making the tree of a program's commands takes as long as most commands: once is enough.
    cached = functools.cache(typer.main.get_command)
    typer.testing._get_command = cached
    # Its fixtures import the packages, which are checked from here on.
    config.pluginmanager.import_plugin("served_fixtures")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out, unread, the files that have no test of the tiers asked for."""
    wanted = tiers.selected(config.option.markexpr)
    if collection_path.suffix == ".py" and not tiers.tiers_in(collection_path) & wanted:
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Give every test its tier: the marked one, process by folder, else unit; order the files."""
    for item in items:
        tier = tiers.tier_of(item)
        assert tier in tiers.tiers_in(item.path), f"{item.nodeid}: its file does not name {tier}"
        item.add_marker(tier)
    yield  # tests of other tiers are left out, and the rest put in a random order
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collect garbage from here on: not of half a million objects of modules, and seldom."""
    if hasattr(session.config, "workerinput"):
        _compiled(session.config).touch()
        alone.close()
    gc.freeze()
    gc.set_threshold(50_000)  # else its rounds are a tenth of the unit tests' time
    gc.enable()


@pytest.hookimpl(optionalhook=True)  # the release check has no xdist
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A worker per core for tests that compute, two for those that wait for their programs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (cores or 1) * (1 if tiers.selected(config.option.markexpr) == {"unit"} else 2)


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


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """What reaches the root logger while a test runs."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger().addHandler(handler)
    yield records
    logging.getLogger().removeHandler(handler)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests; each takes a database of its own."""
    programs = find_programs()
    if programs is None:
        missing("postgres", "postgresql")
    with PostgresServer(programs) as server:
        yield server
