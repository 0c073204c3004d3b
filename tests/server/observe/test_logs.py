"""Whatever the server or a library of it says comes out in the one format that was chosen."""

import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest
import structlog
from acpc_server.observe import configure_logs, log_call


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, known = root.handlers[:], root.level, structlog.get_config()
    yield
    logging.captureWarnings(False)
    root.handlers[:], root.level = handlers, level
    structlog.configure(**known)


def said(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_all_that_speaks_speaks_json_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("INFO", "json")
    structlog.get_logger("acpc.test").info("own", number=1, text="two\nlines")
    logging.getLogger("library").warning("theirs %s", "here")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("a warning", UserWarning, stacklevel=1)
    try:
        raise ValueError("inside")
    except ValueError:
        structlog.get_logger("acpc.test").exception("broken")
    own, theirs, warning, broken = said(capsys)
    assert (own["event"], own["number"], own["text"]) == ("own", 1, "two\nlines")
    assert (own["logger"], own["level"]) == ("acpc.test", "info")
    assert (theirs["event"], theirs["level"]) == ("theirs here", "warning")
    assert "a warning" in str(warning["event"])
    assert "ValueError: inside" in str(broken["exception"])
    assert all(str(line["timestamp"]).endswith("Z") for line in (own, theirs, warning, broken))


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_traceback_does_not_show_what_variables_hold(
    style: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs("INFO", style)
    token = "".join(("acpc_", "s3cret"))
    try:
        raise ValueError(f"a token of {len(token)} letters")
    except ValueError:
        structlog.get_logger("acpc.test").exception("broken")
    shown = capsys.readouterr().err
    assert "a token of 11 letters" in shown
    assert token not in shown


def test_lines_of_calls_are_gathered_in_order_and_none_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs("INFO", "json")
    others = structlog.get_logger("acpc.access")
    lines = []
    for number in range(0, 3000, 2):
        log_call({"number": number})
        if number % 1000 == 0:
            others.info("access", number=number + 1)
            lines += said(capsys)
            assert lines[-1]["event"] == "access", "a line of access waits"
    log_call({"number": 3000})
    log_call({"number": 3002})
    logging.shutdown([lambda: logging.getLogger().handlers[0]])
    lines += said(capsys)
    assert [line["number"] for line in lines] == sorted([*range(0, 3003, 2), 1, 1001, 2001])
    last = lines[-1]
    assert (last["event"], last["logger"], last["level"]) == ("rpc", "acpc.rpc", "info")
    assert str(last["timestamp"]).endswith("Z")


def test_a_full_disk_ends_nobody_who_logs() -> None:
    code = (
        "import structlog; from acpc_server.observe import configure_logs, log_call\n"
        "configure_logs('INFO', 'json')\n"
        "for _ in range(3000): log_call({'method': 'm'})\n"
        "structlog.get_logger('acpc.test').warning('large')\n"
    )
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run([sys.executable, "-c", code], stderr=full, timeout=120, check=False)
    assert done.returncode == 0


def test_who_changed_what_is_logged_at_every_level(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("ERROR", "json")
    structlog.get_logger("acpc.access").info("access", method="m")
    structlog.get_logger("acpc.quiet").warning("large")
    assert [line["event"] for line in said(capsys)] == ["access"]


def test_a_terminal_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("INFO", "console")
    structlog.get_logger("acpc.test").info("own", number=1)
    (line,) = capsys.readouterr().err.splitlines()
    assert "own" in line and "number=1" in line and not line.startswith("{")
