"""What the command sets before torch is imported."""

import os
from types import SimpleNamespace

import pytest
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
