"""``acpc anchors`` and ``acpc score --anchor-set`` against servers on sockets."""

import json
import os
import signal
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import anchor_wire
import h5py
import numpy as np
import pytest
from acpc_client import DatasetAnchors, digest_of
from acpc_command import Acpc, acpc_command
from acpc_lab.datasets import drawn_from
from anchor_counterparty import AnchorCounterparty
from client_counterparty import served
from waiting import GENEROUS_SECONDS

ARRAYS = anchor_wire.anchor_arrays()
DIGEST = anchor_wire.digest(ARRAYS)


@pytest.fixture
def anchors() -> Iterator[Acpc]:
    """Runs ``acpc anchors`` in this process against a store."""
    with served(store := AnchorCounterparty()) as target:
        yield acpc_command(ACPC_TARGET=target, server=store)


@pytest.fixture
def windows() -> Path:
    np.savez(Path("windows.npz"), history=np.array(2), **ARRAYS)
    return Path("windows.npz")


def test_upload_shows_its_progress_and_the_set(anchors: Acpc, windows: Path) -> None:
    answer = anchors("anchors", "upload", windows, "--description", "two cameras")
    assert DIGEST in answer.stdout
    assert "two cameras" in answer.stdout
    request_id = anchors.server.headers[0].request_id
    assert f"upload {request_id}: 0 anchors stored already" in answer.stderr
    assert "stored anchors 12/12" in answer.stderr
    again = anchors("anchors", "upload", windows, "--description", "two cameras", "-o", "json")
    assert json.loads(again.stdout)["digest"] == DIGEST
    assert f"upload {request_id}: 12 anchors stored already" in again.stderr


@pytest.mark.parametrize("form", ["table", "wide", "csv", "json"])
def test_what_others_wrote_moves_nothing_on_a_terminal(anchors: Acpc, form: str) -> None:
    """Whole, letter by letter, in lists, pages and errors."""
    foreign = "a\x1b[2J\x07\x9b\rb"
    asked = ("anchors", "create", "a.h5", "--task", "pusht", "--description", foreign)
    shown = [anchors(*asked, "-o", form)] if form in ("table", "json") else []
    shown.append(anchors("list", "anchor-sets", "-o", form))
    shown.append(anchors("show", "anchor-set", foreign, code=1))
    assert "error: " in shown[-1].stderr
    for answer in shown:
        assert not set("\x1b\x07\x9b\r") & set(answer.stdout + answer.stderr)
    if form != "json":
        anchors(*asked)
        assert r"a\x1b[2J\x07\x9b\rb" in anchors("list", "anchor-sets", "-o", form).stdout


def test_an_interrupted_upload_goes_on(anchors: Acpc, windows: Path) -> None:
    ended = threading.Event()

    def interrupt(_stored: int) -> None:
        anchors.server.on_stream_end = lambda _: None
        os.kill(os.getpid(), signal.SIGINT)  # as a terminal does for Ctrl+C
        ended.wait(GENEROUS_SECONDS)  # no answer, so that it ends a command that waits

    anchors.server.on_stream_end = interrupt
    broken = anchors("anchors", "upload", windows, code=130)
    ended.set()
    assert "run the command again to go on" in broken.stderr
    assert ": 12 anchors stored already" in anchors("anchors", "upload", windows).stderr
    assert [shard.offset for shard in anchors.server.shards] == [0]


def test_create_list_show_delete(anchors: Acpc) -> None:
    made = anchors(
        "anchors", "create", "a.h5", "--task", "pusht", "--anchors", 7, "--protocol",
        "{seed: 5, frameskip: 2, one_per_episode: true}", "--history", 2, "--horizon", 6,
        "--request-id", "r",
    )  # fmt: skip
    assert "a.h5, task pusht, seed 5, one per episode" in made.stdout
    (sent,) = anchors.server.requests["CreateAnchorSet"]
    source = sent.source
    assert (source.count, source.seed, source.frameskip, source.one_per_episode) == (7, 5, 2, True)
    assert (sent.history, sent.horizon, sent.request_id) == (2, 6, "r")
    digest = "c" * 64
    assert digest in anchors("list", "anchor-sets", "-o", "wide").stdout
    assert [
        item["digest"] for item in json.loads(anchors("list", "anchor-sets", "-o", "json").stdout)
    ] == [digest]
    assert (
        json.loads(anchors("show", "anchor-set", digest, "-o", "json").stdout)["source"]["dataset"]
        == "a.h5"
    )
    assert anchors("delete", "anchor-set", digest).stdout == f"{digest}: deleted\n"
    absent = anchors("show", "anchor-set", digest, code=1)
    assert anchors.server.sets == {}
    assert "NOT_FOUND" in absent.stderr


def test_views_of_each_history_are_sent_by_the_name_of_their_group(
    anchors: Acpc, windows: Path
) -> None:
    rng = np.random.default_rng(1)
    shape = (anchor_wire.COUNT, 2, anchor_wire.HISTORY, anchor_wire.HEIGHT, anchor_wire.WIDTH, 3)
    night, camera = rng.integers(0, 256, (2, *shape), np.uint8)
    np.savez(Path("night.npz"), **{"light:0.5": night})
    Path("more").mkdir()
    np.save(Path("more/camera-2.npy"), camera[:, :1])
    more = ("--views", Path("more"))
    # The counterparty knows no views, so the digest is another.
    anchors("anchors", "upload", windows, "--views", Path("night.npz"), *more, code=1)
    sent = {"light:0.5": [], "camera-2": []}
    for shard in anchors.server.shards:
        for extra in shard.extras:
            data = zlib.decompress(extra.values.data) if extra.compression == 2 else None
            found = np.frombuffer(data or extra.values.data, np.uint8)
            sent[extra.name.removeprefix("views/")].append(found.reshape(extra.values.shape))
    np.testing.assert_array_equal(np.concatenate(sent["light:0.5"]), night)
    np.testing.assert_array_equal(np.concatenate(sent["camera-2"]), camera[:, :1])
    answer = anchors("anchors", "upload", windows, "--views", windows, code=2)
    assert "cannot be read as views: history must be one plain array" in answer.output
    answer = anchors("anchors", "upload", windows, *more, *more, code=2)
    assert "holds the group 'camera-2', as another file does" in answer.output


@pytest.fixture
def rooms() -> Path:
    """A dataset of two episodes."""
    rng = np.random.default_rng(2)
    with h5py.File(Path("rooms.h5"), "w") as file:
        file["ep_len"], file["ep_offset"] = [20, 15], [0, 20]
        file["action"], file["pos_agent"] = rng.normal(size=(2, 35, 2))
        file["pixels"] = rng.integers(0, 256, (35, 8, 8, 3), np.uint8)
    return Path("rooms.h5")


def test_a_dataset_is_recognised_drawn_from_and_sent(anchors: Acpc, rooms: Path) -> None:
    drawing = ("--anchors", 6, "--protocol", "{frameskip: 2}", "--history", 2, "--horizon", 3)
    answer = anchors("anchors", "upload", rooms, "--task", "tworoom", *drawing, code=1)
    assert "read anchors 6/6" in answer.stderr
    (shard,) = anchors.server.shards
    header = anchors.server.headers[0]
    assert (header.anchors, header.history, header.horizon) == (6, 2, 3)
    source = DatasetAnchors("rooms.h5", "tworoom", count=6, frameskip=2)
    with drawn_from(rooms, source, history=2, horizon=3) as drawn:
        assert header.expected_digest == digest_of(drawn)
        assert list(np.frombuffer(shard.anchor_ids.data, "<i8")) == drawn.anchor_ids.tolist()
