"""Runs tests in processes forked from the one that has collected them: all is imported once."""

import multiprocessing
import os
from contextlib import suppress
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import SimpleNamespace

import pytest

FORK = multiprocessing.get_context("fork")


class Shares:
    """Ranges of the items, one a process; who has come to its end takes half of the longest."""

    def __init__(self, items: int, count: int) -> None:
        ends = [items * number // count for number in range(count + 1)]
        self._ranges = FORK.Array("l", [end for both in pairwise(ends) for end in both])

    def take(self, own: int) -> int | None:
        """The next item of a process, which nobody else gets; None when there is none left."""
        with self._ranges.get_lock():
            found, own = self._ranges, 2 * own
            if found[own] == found[own + 1]:
                other = max(range(0, len(found), 2), key=lambda at: found[at + 1] - found[at])
                middle = (found[other] + found[other + 1]) // 2
                found[own], found[own + 1], found[other + 1] = middle, found[other + 1], middle
            if found[own] == found[own + 1]:
                return None
            found[own] += 1
            return int(found[own] - 1)


class Reports:
    """Sends what a process reports to the one that shows it."""

    def __init__(self, config: pytest.Config, to: Connection) -> None:
        self._config, self._to = config, to

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        self._to.send(hook.pytest_report_to_serializable(config=self._config, report=report))


def _run(session: pytest.Session, shares: Shares, own: int, base: Path, to: Connection) -> None:
    """Run a process's share. It has files of its own for what is captured and for tmp_path."""
    config, plugins = session.config, session.config.pluginmanager
    capture, terminal = map(plugins.get_plugin, ("capturemanager", "terminalreporter"))
    capture.stop_global_capturing()
    capture.start_global_capturing()
    plugins.unregister(terminal)
    plugins.register(SimpleNamespace(_tw=terminal._tw), "terminalreporter")  # pytest-timeout's
    plugins.register(Reports(config, to))
    os.environ["PYTEST_XDIST_WORKER"] = f"gw{own}"  # to others it is one of xdist's
    (base / str(own)).mkdir()
    config._tmp_path_factory._basetemp = base / str(own)
    at = shares.take(own)
    with suppress(KeyboardInterrupt):
        while at is not None:
            following = shares.take(own)
            after = None if following is None else session.items[following]
            config.hook.pytest_runtest_protocol(item=session.items[at], nextitem=after)
            at = following


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the items in as many processes as ``--forks`` says, and show what they report."""
    config = session.config
    if not config.option.forks or config.option.collectonly or session.testsfailed:
        return None
    # NumPy's threads and those of jemalloc survive a fork; those of gRPC do not.
    threads = {(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()}
    threads -= {Path("/proc/self/comm").read_text(), "jemalloc_bg_thd\n"}
    assert not threads, f"a module starts threads when it is imported: {threads}"
    shares = Shares(len(session.items), config.option.forks)
    base = config._tmp_path_factory.getbasetemp()
    running: dict[Connection, multiprocessing.process.BaseProcess] = {}
    try:
        for own in range(config.option.forks):
            ours, its = FORK.Pipe(duplex=False)
            running[ours] = FORK.Process(target=_run, args=(session, shares, own, base, its))
            running[ours].start()
            its.close()
        _show(session, dict(running))
    finally:
        for process in running.values():
            process.terminate()
            process.join()
    return True


def _show(
    session: pytest.Session, running: dict[Connection, multiprocessing.process.BaseProcess]
) -> None:
    hook, last = session.config.hook, dict.fromkeys(running, "its first test")
    while running:
        for ready in wait(list(running)):
            try:
                data = ready.recv()
            except EOFError:
                ended = running.pop(ready)
                ended.join()
                if ended.exitcode:
                    session.shouldfail = f"exit code {ended.exitcode} after {last[ready]}"
            else:
                report = hook.pytest_report_from_serializable(config=session.config, data=data)
                last[ready] = report.nodeid
                hook.pytest_runtest_logreport(report=report)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
