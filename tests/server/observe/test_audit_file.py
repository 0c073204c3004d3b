"""The audit log's own file: whole lines, turned over, and no call that waits for it."""

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import structlog
from acpc_server.observe import AuditFile, Metrics, configure_logs


@pytest.fixture(autouse=True)
def restored(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, known = root.handlers[:], root.level, structlog.get_config()
    configure_logs("ERROR", "json")
    yield
    logging.captureWarnings(False)
    root.handlers[:], root.level = handlers, level
    structlog.configure(**known)


def numbers(*paths: Path) -> list[int]:
    return [json.loads(line)["number"] for path in paths for line in path.read_text().splitlines()]


def say(number: int) -> None:
    structlog.get_logger("acpc.audit").info("audit", number=number)


def unwritten(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("acpc_audit_unwritten_total") or 0.0


def test_lines_of_several_writers_are_whole_in_order_and_turned_over(tmp_path: Path) -> None:
    path, metrics = tmp_path / "audit.jsonl", Metrics()
    audits = [AuditFile(path, 4000, 100, metrics) for _ in range(2)]  # as of two processes
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(say, range(200)))
    for audit in audits:
        audit.close()
    say(1000)
    parts = sorted(tmp_path.iterdir())
    assert len(parts) > 5
    longest = max(len(line) for part in parts for line in part.read_bytes().splitlines(True))
    assert all(part.stat().st_size <= 4000 + longest for part in parts)  # the other's line
    assert sorted(numbers(*parts)) == sorted([*range(200), *range(200)])
    assert unwritten(metrics) == 0


def test_the_oldest_goes_and_a_moved_file_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditFile(path, 1, 2, Metrics())
    for number in range(5):
        say(number)
    assert numbers(path, tmp_path / "audit.jsonl.1", tmp_path / "audit.jsonl.2") == [4, 3, 2]
    path.rename(tmp_path / "moved")
    say(5)
    audit.close()
    assert numbers(path) == [5]
    assert len(list(tmp_path.iterdir())) == 4


def test_a_disk_that_is_full_stops_nothing_and_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs("ERROR", "json")  # on the stream that is captured
    path, metrics = tmp_path / "audit.jsonl", Metrics()
    path.symlink_to("/dev/full")
    audit = AuditFile(path, 10**6, 2, metrics)
    for number in range(3):
        say(number)
    path.unlink()
    say(3)
    audit.close()
    assert numbers(path) == [3]
    assert unwritten(metrics) == 3
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines].count("audit_file_failed") == 1
    assert [line["number"] for line in lines if line["event"] == "audit"] == [0, 1, 2, 3]


def test_a_line_that_comes_too_late_touches_no_file_of_others(tmp_path: Path) -> None:
    metrics, path = Metrics(), tmp_path / "audit.jsonl"
    audit = AuditFile(path, 1000, 1, metrics)
    audit.close()
    with (tmp_path / "other").open("wb") as other:  # which gets the same number
        audit.handle(logging.LogRecord("acpc.audit", logging.INFO, "", 0, "late", None, None))
        other.write(b"whole")
    assert (tmp_path / "other").read_bytes() == b"whole"
    assert path.read_bytes() == b""
    assert unwritten(metrics) == 1
