"""What the command sets before torch is imported."""

import signal
import sys
from types import SimpleNamespace

import pytest
from acpc_server import __main__


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
