"""The page of a server's jobs, as browsers ask for it: with keys, without, what is not there."""

import base64
import http.client
import re
from pathlib import Path

import pytest
from acpc_client import AcpcClient, DatasetAnchors, GaussianNoise, Score
from acpc_server.access import Role, create_key
from served_world import ServedWorld
from server_process import ServerProcess
from waiting import GENEROUS_SECONDS

ANCHORS = DatasetAnchors("rooms.h5", "tworoom", count=20)
Parts = tuple[ServerProcess, str, Score]


def get(port: int, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GENEROUS_SECONDS)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.headers)
    finally:
        connection.close()


@pytest.fixture(scope="module")
def parts(job_server: ServerProcess) -> Parts:
    with AcpcClient(job_server.address) as client:
        job = client.score_checkpoint("model", ANCHORS, GaussianNoise(0.05), reference="base")
        return job_server, job.name, job.result()


def test_a_list_and_a_job_say_what_the_client_reads(
    parts: Parts,
) -> None:
    server, name, score = parts
    status, page, headers = get(server.metrics_port, "/")
    assert status == 200
    assert "script" not in page and "default-src 'none'" in headers["Content-Security-Policy"]
    (row,) = re.findall(r"<tr><td>.*?</tr>", page, re.DOTALL)
    wanted = ("model", "gaussian_noise:0.05", "succeeded", score.verdict.outcome.name.lower())
    assert all(text in row for text in (f'href="/{name}"', *wanted))
    status, page, _ = get(server.metrics_port, f"/{name}")
    assert status == 200
    assert f"<td>raw IR<td>{score.checkpoint.ir_raw:.4g}<td>" in page
    assert score.receipt.checkpoint_digest in page
    assert page.count("<circle") == 2


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/operations/<script>", 404, "no operation is named operations/&lt;script&gt;"),
        ("/?start=<b>", 400, "found &#39;start=&lt;b&gt;&#39;"),
        ("/?start=99", 200, "None yet"),
        ("/else", 404, "Not Found"),
    ],
)
def test_what_is_not_there_is_said(parts: Parts, path: str, status: int, said: str) -> None:
    found, page, _ = get(parts[0].metrics_port, path)
    assert (found, said in page, "<script" in page) == (status, True, False)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example:80", 403),
        ("ip6-localhost:80", 403),  # whatever a name resolves to
        ("127.0.0.1.evil.example", 403),
        ("localhost", 200),
        ("[::1]:9464", 200),
    ],
)
def test_another_site_cannot_read_it(parts: Parts, host: str, status: int) -> None:
    """A name that an attacker makes lead to this host is not this host's."""
    found, page, _ = get(parts[0].metrics_port, "/", Host=host)
    assert (found, "gaussian_noise" in page) == (status, status == 200)


def test_a_key_is_the_password(world: ServedWorld, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    key = create_key(keys, "ops", Role.READ)
    with world.server(tmp_path / "state", keys_file=keys) as served:

        def ask(password: str, scheme: str = "Basic") -> tuple[int, str | None]:
            text = f"anyone:{password}".encode() if scheme == "Basic" else b""
            given = base64.b64encode(text).decode() or password
            status, _, headers = get(served.metrics_port, "/", Authorization=f"{scheme} {given}")
            return status, headers.get("WWW-Authenticate")

        assert get(served.metrics_port, "/")[0] == 401
        assert ask(key) == (200, None) == ask(key, "Bearer")
        assert ask(f"{key}x")[0] == ask("\xe9")[0] == ask("")[0] == ask("!", "Basic")[0] == 401
        assert (ask("wrong")[1] or "").startswith("Basic ")
