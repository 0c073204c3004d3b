"""``acpc-server import hf:``: a checkpoint of a Hub that a local server plays."""

import errno
import hashlib
import http.server
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import processes
import pytest
import torch
from acpc_server.cli import app
from acpc_server.errors import AcpcError, HostShortage, InvalidArgument
from acpc_server.models import list_checkpoints, list_others, load_checkpoint
from public_checkpoint import write_checkpoint
from typer.testing import CliRunner

COMMIT = "1f" * 20
CPU = torch.device("cpu")


class Hub(http.server.ThreadingHTTPServer):
    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Pages)
        self.files = files
        self.withheld = ""
        self.asked: list[str] = []
        self.told: dict[str, Any] = {}  # what it tells instead
        self.cut_after = 0
        self.tokens: set[str | None] = set()

    def entry(self, name: str) -> dict[str, Any]:
        data = self.files[name]
        stored = b"blob %d\0" % len(data) + data
        blob = hashlib.new("sha1", stored, usedforsecurity=False).hexdigest()
        entry = {"type": "file", "size": len(data), "path": name, "rfilename": name}
        if name.endswith(".json"):
            return entry | {"oid": blob, "blobId": blob}
        sha = hashlib.sha256(data).hexdigest()
        lfs = {"size": len(data), "sha256": sha, "oid": sha, "pointerSize": 100}
        return entry | {"oid": blob, "blobId": blob, "lfs": lfs}


class _Pages(http.server.BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].replace("%2F", "/")
        hub, name = self.server, path.rpartition("/")[2]
        headers = {"X-Repo-Commit": COMMIT}
        hub.asked.append(path)
        hub.tokens.add(self.headers["Authorization"])
        status, body, start = 200, b"", 0
        if "someone/wm" not in path:
            status, headers["X-Error-Code"] = 404, "RepoNotFound"
        elif hub.withheld and path.endswith(hub.withheld):
            status, headers["X-Error-Code"] = 404, "EntryNotFound"
        elif "/revision/none" in path:
            status, headers["X-Error-Code"] = 404, "RevisionNotFound"
        elif path.startswith("/api/"):
            siblings = [hub.entry(name) for name in hub.files]
            info = {"id": "someone/wm", "sha": COMMIT, "siblings": siblings, **hub.told}
            body = json.dumps(info).encode()
        else:
            entry = hub.entry(name)
            headers["ETag"] = f'"{entry.get("lfs", {}).get("sha256", entry["blobId"])}"'
            if "Range" in self.headers:
                status, start = 206, int(self.headers["Range"].split("=")[1].split("-")[0])
            body = hub.files[name][start:]
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            cut = hub.cut_after if "resolve" in path and hub.cut_after else len(body)
            self.wfile.write(body[:cut])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    folder = write_checkpoint(tmp_path / "published")
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    with Hub({**files, "README.md": b"a card"}) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        yield server
        server.shutdown()
        thread.join()


def pull(*words: object) -> str:
    done = CliRunner().invoke(app, ["import", *map(str, words)])
    if done.exception is not None:
        raise done.exception
    return done.output


def test_writes_a_folder_that_the_server_loads(hub: Hub, tmp_path: Path) -> None:
    target = tmp_path / "root" / "lewm"
    said = pull("hf:someone/wm", target)
    assert COMMIT in said and "wrote" in said and "lewm, digest" in said
    loaded = load_checkpoint(tmp_path / "root", "lewm", device=CPU)
    published = load_checkpoint(tmp_path, "published", device=CPU)
    assert loaded.card == published.card
    record = json.loads((target / "source.json").read_text())
    assert record["from"] == f"hf:someone/wm@{COMMIT}"
    sha = hashlib.sha256(hub.files["weights.pt"]).hexdigest()
    assert record["weights"]["weights.pt"]["sha256"] == sha
    assert {x.name for x in target.iterdir()} == {"config.json", "weights.pt", "source.json"}
    assert [x.name for x in target.parent.iterdir()] == ["lewm"]
    with pytest.raises(AcpcError, match="exists; name a new folder"):
        pull("hf:someone/wm", target)


def test_a_dry_run_shows_commit_and_files_and_writes_nothing(hub: Hub, tmp_path: Path) -> None:
    said = pull("hf:someone/wm@main", tmp_path / "new", "--dry-run")
    assert f"{COMMIT}: config.json, weights.pt" in said and "README" not in said
    assert not any("resolve" in path for path in hub.asked)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"sha": None}, "names no commit"),
        ({"sha": "../../elsewhere"}, "names no commit"),
        ({"siblings": [None]}, "did not give someone/wm"),
        ({"siblings": [{"rfilename": "../weights.pt", "size": 9}]}, "no such weights file"),
        ({"siblings": [{"rfilename": "weights.pt", "size": 2**40}]}, f"has {2**40} bytes, over"),
        ({"siblings": [{"rfilename": "weights.pt"}]}, "has None bytes"),
        (
            {"siblings": [{"rfilename": "weights.pt", "size": 9, "lfs": {
                "size": 9, "sha256": "0" * 64, "pointerSize": 1}}]},
            "another sha",
        ),
    ],
)  # fmt: skip
def test_what_a_hub_tells_is_checked(
    hub: Hub, tmp_path: Path, told: dict[str, Any], problem: str
) -> None:
    hub.told = told
    with pytest.raises(AcpcError, match=problem):
        pull("hf:someone/wm", tmp_path / "root" / "new")
    assert not any(x.suffix == ".pt" for x in tmp_path.glob("root/**/*") if x.is_file())


def test_a_token_opens_what_is_private(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    pull("hf:someone/wm", tmp_path / "new")
    assert hub.tokens == {None}
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    pull("hf:someone/wm", tmp_path / "another")
    assert hub.tokens == {None, "Bearer hf_mine"}


@pytest.mark.process
def test_the_public_hub_is_asked_where_none_is_named(tmp_path: Path) -> None:
    """In a process of its own, offline: what it imports of huggingface_hub nobody has imported."""
    program = Path(sys.executable).with_name("acpc-server")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    environment.pop("HF_ENDPOINT", None)
    command = [program, "import", "hf:someone/wm", tmp_path / "new"]
    done = processes.run(command, check=False, fresh=True, env=environment)
    refused = "FAILED_PRECONDITION: the Hub (https://huggingface.co) did not give someone/wm: "
    assert done.stderr.startswith(refused)


@pytest.mark.parametrize(("withheld", "cut_after"), [("weights.pt", 0), ("", 10_000)])
def test_what_was_downloaded_is_kept_until_it_is_imported(
    hub: Hub, tmp_path: Path, withheld: str, cut_after: int
) -> None:
    """No listing shows it, and the same command goes on."""
    root = tmp_path / "root"
    hub.withheld, hub.cut_after = withheld, cut_after
    with pytest.raises(AcpcError, match="did not give someone/wm"):
        pull("hf:someone/wm", root / "new")
    assert [x.name for x in root.iterdir()] == [f".new.{COMMIT}"]
    assert not list_checkpoints(root) and not list_others(root)
    hub.withheld, hub.cut_after = "", 0
    pull("hf:someone/wm", root / "new")
    assert [x.name for x in root.iterdir()] == ["new"]


def test_a_full_disk_is_not_the_hub_s_fault(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(huggingface_hub.HfApi, "hf_hub_download", full)
    with pytest.raises(HostShortage, match="disk space"):
        pull("hf:someone/wm", tmp_path / "new")


def test_one_of_several_weights_is_chosen_by_name(hub: Hub, tmp_path: Path) -> None:
    hub.files["weights_epoch_2.pt"] = hub.files["weights.pt"]
    pull("hf:someone/wm", tmp_path / "new", "--weights", "*_2.pt")
    names = {x.name for x in (tmp_path / "new").iterdir()}
    assert names == {"config.json", "weights_epoch_2.pt", "source.json"}
    with pytest.raises(AcpcError, match=r"there are: weights.pt, weights_epoch_2.pt"):
        pull("hf:someone/wm", tmp_path / "other", "--weights", "none.pt")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("hf:wm", "wanted: hf:USER/REPO"),
        ("hf:../../etc", "wanted: hf:USER/REPO"),
        ("hf:someone/wm@none", "no such revision"),
        ("hf:nobody/wm", "does not exist on the Hub, or is private"),
    ],
)
def test_what_cannot_be_pulled_is_one_sentence(
    hub: Hub, tmp_path: Path, source: str, problem: str
) -> None:
    with pytest.raises(AcpcError, match=problem) as caught:
        pull(source, tmp_path / "new")
    assert "\n" not in caught.value.message
    assert not (tmp_path / "new").exists()


def test_the_server_answers_a_name_on_the_hub_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument) as caught:
        load_checkpoint(tmp_path, "hf:someone/wm@v2", device=CPU)
    assert "acpc-server import hf:someone/wm@v2 CHECKPOINT_ROOT/wm" in caught.value.message
