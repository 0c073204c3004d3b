"""What the command sets before torch is imported."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from acpc.extras import load_command
from acpc_server import __main__


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, __main__.SPIN_COUNT),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, None),
    ],
)
def test_threads_sleep_soon_unless_the_operator_says_how_they_wait(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: str | None
) -> None:
    seen: list[str | None] = []
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    def load(*_: str) -> SimpleNamespace:
        seen.append(os.environ.get("GOMP_SPINCOUNT"))
        return SimpleNamespace(main=lambda: None)

    monkeypatch.setattr(__main__, "load_command", load)
    monkeypatch.setenv("GRPC_VERBOSITY", "INFO")  # the operator's word holds
    __main__.main()
    assert seen == [expected]
    assert os.environ["GRPC_VERBOSITY"] == "INFO"


def test_a_hang_up_does_not_end_a_server_that_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    command = SimpleNamespace(main=lambda: seen.append(signal.getsignal(signal.SIGHUP)))
    monkeypatch.setattr(sys, "argv", ["acpc-server", "serve"])
    monkeypatch.setattr(__main__, "load_command", lambda *_: command)
    kept = signal.getsignal(signal.SIGHUP)
    try:
        __main__.main()
    finally:
        signal.signal(signal.SIGHUP, kept)
    assert seen == [signal.SIG_IGN]


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [(signal.default_int_handler, signal.SIG_DFL), (signal.SIG_IGN, signal.SIG_IGN)],
)
def test_an_interrupt_while_libraries_load_shows_no_traceback(
    before: Callable[..., Any] | signal.Handlers,
    meanwhile: signal.Handlers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "slow_command.py").write_text("import signal\nseen = signal.getsignal(2)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slow_command", raising=False)
    kept = signal.signal(signal.SIGINT, before)
    try:
        assert load_command("acpc", "slow_command", "lab").seen is meanwhile
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, kept)
