"""The webhook: what it takes, what it rejects and how, and who may call."""

import contextlib
import http.client
import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from acpc_client.errors import ArgumentError, RunEnded
from acpc_client.sync.client import AcpcClient
from acpc_lab.watching import Watch, Webhook
from job_counterparty import JobParty
from waiting import GENEROUS_SECONDS, wait_until

JSON = {"Content-Type": "application/json"}


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    document: dict[str, Any]


def call(
    port: int, method: str, path: str, body: bytes | str | None = None, **headers: str
) -> Reply:
    """One request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GENEROUS_SECONDS)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {**JSON, **given})
        answer = connection.getresponse()
        return Reply(answer.status, answer.headers, json.loads(answer.read()))
    finally:
        connection.close()


@pytest.fixture
def running(watch: Watch, target: str) -> Iterator[Watch]:
    """The watch, looking at its folder."""
    stop = threading.Event()

    def run() -> None:
        with AcpcClient(target) as client, pytest.raises(RunEnded):
            watch.run(client, interval=0.01, stop=stop)

    runner = threading.Thread(target=run)
    runner.start()
    wait_until((watch.folder / "journal.jsonl").exists)
    yield watch
    stop.set()
    runner.join()


@pytest.fixture
def port(running: Watch) -> Iterator[int]:
    with Webhook(running, "127.0.0.1", 0) as webhook:
        yield webhook.port


@pytest.fixture
def payload(root: Path) -> dict[str, Any]:
    """What axolotl's external benchmark API sends."""
    return {
        "event": "save",
        "step": 1200,
        "checkpoint_dir": str(root / "output/checkpoint-1200"),
        "output_dir": str(root / "output"),
    }


def post(port: int, payload: object, **headers: str) -> Reply:
    return call(port, "POST", "/operations", json.dumps(payload), **headers)


def finished(port: int, name: str) -> dict[str, Any]:
    found: list[Reply] = []

    def done() -> bool:
        found.append(call(port, "GET", f"/operations/{name}"))
        return found[-1].document["status"] not in ("queued", "running")

    wait_until(done)
    return found[-1].document


def test_a_request_is_answered_with_an_operation_to_poll(
    port: int, payload: dict[str, Any], write: Callable[..., Path], party: JobParty
) -> None:
    write("output/checkpoint-1200")
    answer = post(port, payload)
    assert answer.status == 202
    assert answer.document["status"] in ("queued", "running", "completed")
    name = answer.document["job_id"]
    assert answer.headers["Location"] == f"/operations/{name}"
    document = finished(port, name)
    assert document["status"] == "completed"
    assert document["verdict"] == "passed"
    assert document["metrics"]["acpc/gaussian_noise_0.08/sr"] == 0.97
    assert document["checkpoint"] == "output/checkpoint-1200"
    assert document["scores"][0]["kind"] == "sweep_cell"
    assert document["scores"][0]["answer"]["score"]
    again = post(port, payload)
    assert (again.status, again.document["job_id"]) == (202, name)
    assert again.document["status"] == "completed"
    assert len(party.jobs) == 1


def test_a_request_outlives_its_watcher(
    watch: Watch, target: str, payload: dict[str, Any], write: Callable[..., Path]
) -> None:
    write("output/checkpoint-1200")
    journal = watch._disk.journal
    with journal.writing(), Webhook(watch, "127.0.0.1", 0) as webhook:
        name = post(webhook.port, payload).document["job_id"]
    again = Watch(watch.spec, watch.folder, watch.finder)
    with AcpcClient(target) as client:
        again.run(client, once=True)
    with Webhook(again, "127.0.0.1", 0) as webhook:
        assert finished(webhook.port, name)["status"] == "completed"


def test_of_several_files_the_step_names_one(
    port: int, payload: dict[str, Any], root: Path, write: Callable[..., Path]
) -> None:
    for epoch in (1, 2):
        write("run", f"weights_epoch_{epoch}.pt")
    asked = {**payload, "checkpoint_dir": "run", "step": 2}
    assert post(port, asked).document["weights"] == "weights_epoch_2.pt"
    answer = post(port, {**asked, "step": 3})
    assert (answer.status, answer.document["error"]["code"]) == (422, "AMBIGUOUS")
    assert "weights_epoch_1.pt, weights_epoch_2.pt" in answer.document["error"]["message"]


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("event", None, "INVALID_ARGUMENT"),
        ("event", "load", "INVALID_ARGUMENT"),
        ("event", {"a": 1}, "INVALID_ARGUMENT"),
        ("step", "12", "INVALID_ARGUMENT"),
        ("step", True, "INVALID_ARGUMENT"),
        ("step", -1, "INVALID_ARGUMENT"),
        ("step", 10**30, "INVALID_ARGUMENT"),
        ("output_dir", 3, "INVALID_ARGUMENT"),
        ("output_dir", "\ud800", "INVALID_ARGUMENT"),
        ("output_dir", "x" * 5000, "INVALID_ARGUMENT"),
        ("checkpoint_dir", "/etc", "OUTSIDE_ROOT"),
        ("checkpoint_dir", "../..", "OUTSIDE_ROOT"),
        ("checkpoint_dir", "a\0b", "OUTSIDE_ROOT"),
        ("checkpoint_dir", "\ud800", "OUTSIDE_ROOT"),
        ("checkpoint_dir", "linked/..", "OUTSIDE_ROOT"),
        ("checkpoint_dir", "missing", "NO_CHECKPOINT"),
        ("checkpoint_dir", "x" * 4000, "NO_CHECKPOINT"),
        ("checkpoint_dir", "empty", "NO_CHECKPOINT"),
    ],
)
def test_a_wrong_field_is_named(
    field: str, value: object, code: str, port: int, payload: dict[str, Any], root: Path,
    write: Callable[..., Path], tmp_path: Path,
) -> None:  # fmt: skip
    write("output/checkpoint-1200")
    (root / "empty").mkdir()
    (tmp_path / "elsewhere/inner").mkdir(parents=True)
    (root / "linked").symlink_to(tmp_path / "elsewhere/inner")
    asked = {name: item for name, item in {**payload, field: value}.items() if item is not None}
    answer = post(port, asked)
    assert answer.status == 422
    assert (answer.document["error"]["field"], answer.document["error"]["code"]) == (field, code)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[]", {}, 422),
        (b"\xff\xfe", {}, 400),
        (b"{}", {"Content_Type": "text/plain"}, 415),
        (b"{}", {"Content_Length": "x"}, 411),
        (b"{}", {"Content_Length": "-1"}, 411),
        (b"x" * 70_000, {}, 413),
        (b"{}", {"X_Long": "x" * 20_000}, 431),
        (b"{}", {"Host": "trap.example"}, 403),
    ],
)
def test_a_wrong_request_has_a_status_of_its_own(
    body: bytes, headers: dict[str, str], status: int, port: int
) -> None:
    answer = call(port, "POST", "/operations", body, **headers)
    assert answer.status == status
    assert answer.document["error"]["message"]


def test_other_paths_and_methods_say_what_there_is(port: int) -> None:
    assert call(port, "GET", "/").status == 404
    assert call(port, "GET", "/operations/none").document["error"]["code"] == "NOT_FOUND"
    for method, path, allowed in (("PUT", "/operations", "POST"), ("POST", "/operations/a", "GET")):
        answer = call(port, method, path)
        assert (answer.status, answer.headers["Allow"]) == (405, allowed)


def test_a_token_is_asked_of_everyone(running: Watch) -> None:
    with Webhook(running, "127.0.0.1", 0, "s3cret") as webhook:
        for given in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Basic s3cret"}):
            answer = call(webhook.port, "GET", "/operations/none", **given)
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        known = {"Authorization": "Bearer s3cret", "Host": "trainer.example"}
        assert call(webhook.port, "GET", "/operations/none", **known).status == 404


def test_a_token_may_have_any_letters(running: Watch) -> None:
    with Webhook(running, "127.0.0.1", 0, "geh\N{LATIN SMALL LETTER E WITH ACUTE}im") as webhook:
        for token, status in (("geh\u00e9im", 404), ("gehim", 401), ("geh\u00eaim", 401)):
            sent = f"Bearer {token}".encode().decode("latin-1")  # as curl sends it
            answer = call(webhook.port, "GET", "/operations/none", Authorization=sent)
            assert answer.status == status


def test_callers_that_are_hung_up_on_at_the_end_are_no_error(
    running: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.ExitStack() as callers:
        with Webhook(running, "127.0.0.1", 0) as webhook:
            for sent in (b"", b"POST /operations HTTP/1.1\r\n"):
                caller = socket.create_connection(("127.0.0.1", webhook.port), GENEROUS_SECONDS)
                callers.enter_context(caller).sendall(sent)
            assert call(webhook.port, "GET", "/operations/none").status == 404
        assert caller.recv(100) == b""
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_an_address_that_others_reach_wants_a_token(watch: Watch) -> None:
    with pytest.raises(ArgumentError, match="give it a token"):
        Webhook(watch, "0.0.0.0", 0)  # noqa: S104


def test_silent_callers_hold_no_thread_and_keep_nobody_out(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = threading.active_count()
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
    try:
        silent[0].sendall(b"POST /operations HTTP/1.1\r\n")
        assert call(port, "GET", "/operations/none").status == 404
        assert threading.active_count() <= threads + 10  # the few that read files
    finally:
        for connection in silent:
            connection.close()


def test_a_crowd_of_callers_does_not_use_up_file_descriptors(
    running: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("_SECONDS", "_SILENT_SECONDS"):
        monkeypatch.setattr(f"acpc_lab.watching.webhook.{bound}", 10 * GENEROUS_SECONDS)
    with Webhook(running, "127.0.0.1", 0) as webhook, contextlib.ExitStack() as crowd:
        for place in range(200):
            caller = socket.create_connection(("127.0.0.1", webhook.port), GENEROUS_SECONDS)
            crowd.enter_context(caller)
            if place >= 64:  # answered at once
                assert caller.recv(100).startswith(b"HTTP/1.1 503")

        def is_hung_up_on() -> bool:
            try:
                caller.sendall(b"still here")
            except OSError:
                return True
            return False

        wait_until(is_hung_up_on)


def test_silent_callers_give_their_places_back_soon(
    running: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acpc_lab.watching.webhook._SECONDS", 10 * GENEROUS_SECONDS)
    monkeypatch.setattr("acpc_lab.watching.webhook._SILENT_SECONDS", 0.5)
    with Webhook(running, "127.0.0.1", 0) as webhook, contextlib.ExitStack() as crowd:
        for place in range(64):
            caller = socket.create_connection(("127.0.0.1", webhook.port), GENEROUS_SECONDS)
            crowd.enter_context(caller)
            if place % 2:  # has its answer, and stays
                caller.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

        def is_served() -> bool:
            with contextlib.suppress(OSError, http.client.HTTPException):
                return call(webhook.port, "GET", "/operations/none").status == 404
            return False

        wait_until(is_served)


def test_a_caller_that_is_too_slow_is_hung_up_on(
    running: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acpc_lab.watching.webhook._SECONDS", 0.05)
    with (
        Webhook(running, "127.0.0.1", 0) as webhook,
        socket.create_connection(("127.0.0.1", webhook.port), GENEROUS_SECONDS) as slow,
    ):
        slow.sendall(b"POST /operations HTTP/1.1\r\nContent-Length: 9\r\n")
        assert slow.recv(100) == b""


def test_whatever_is_sent_is_answered_in_words_or_hung_up_on(
    port: int, payload: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    good = json.dumps(payload).encode()
    head = b"POST /operations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    whole = head + b"Content-Length: %d\r\n\r\n" % len(good) + good
    chance = random.Random(11)
    for _ in range(200):
        sent = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            sent[chance.randrange(len(sent))] = chance.randrange(256)
        with socket.create_connection(("127.0.0.1", port), GENEROUS_SECONDS) as caller:
            caller.sendall(sent)
            caller.shutdown(socket.SHUT_WR)
            answer = caller.makefile("rb").read()
        assert answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4")), (bytes(sent), answer)
    assert call(port, "GET", "/operations/none").status == 404
    assert "Traceback" not in capfd.readouterr().err
