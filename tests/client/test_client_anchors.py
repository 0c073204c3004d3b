"""Anchor sets from the client: what is sent, how it goes on, and what is not believed."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anchor_wire
import grpc
import numpy as np
import pytest
from acpc.v1 import anchor_service_pb2 as pb
from acpc_client import AnchorArrays, UploadProgress, digest_of, errors
from acpc_lab.tables import load_anchors
from anchor_counterparty import AnchorCounterparty
from client_counterparty import served
from client_messages import retry_info, status
from google.rpc import error_details_pb2

COUNT = 20
ARRAYS = anchor_wire.anchor_arrays(COUNT)
DIGEST = anchor_wire.digest(ARRAYS)
# Three of them are a shard of 8 MiB, 13 of them the 32 MiB of a stream.
LARGE = (420, 420)


@pytest.fixture
def side(side_of: Any) -> Iterator[Any]:
    store = AnchorCounterparty()
    with served(store) as target:
        yield side_of(target, store)


def anchors(**changed: Any) -> AnchorArrays:
    return AnchorArrays(history=anchor_wire.HISTORY, **{**ARRAYS, **changed})


def upload(side: Any, given: Any, **options: Any) -> Any:
    return side.ask(lambda client: client.anchors.upload(given, **options))


def test_whole_arrays_are_sent_in_shards_and_streams(side: Any) -> None:
    told: list[UploadProgress] = []
    steps = anchor_wire.STEPS
    grey = np.broadcast_to(np.arange(16, dtype=np.uint8)[:, None, None, None, None],
                           (16, steps, *LARGE, 3))  # fmt: skip
    large = {**anchor_wire.anchor_arrays(16), "frames": grey}
    given = AnchorArrays(history=anchor_wire.HISTORY, **large)
    options = {"description": "mine", "progress": told.append, "compress": False}
    stored = upload(side, given, **options)
    assert stored.digest == anchor_wire.digest(large) == digest_of(given)
    assert (stored.anchors, stored.description) == (16, "mine")
    assert (stored.history, stored.horizon) == (anchor_wire.HISTORY, anchor_wire.HORIZON)
    assert [shard.offset for shard in side.server.shards] == list(range(0, 16, 3))
    assert len(side.server.headers) == len(told) - 1 == 2
    assert {header.expected_digest for header in side.server.headers} == {stored.digest}
    assert [progress.stored for progress in told] == sorted({p.stored for p in told})
    assert told[-1].sent_bytes == sum(shard.ByteSize() for shard in side.server.shards)


def refusal(code: str, reason: str = "", retry: float | None = None) -> Any:
    details: list[Any] = [error_details_pb2.ErrorInfo(reason=reason, domain="acpc.v1")]
    if retry is not None:
        details.append(retry_info(retry))
    return status(grpc.StatusCode[code], "told to", *details)


PASSING = [
    refusal("UNAVAILABLE"),
    refusal("ABORTED", "CONCURRENT_CALL", 0.01),
    refusal("DEADLINE_EXCEEDED", "UPLOAD_IDLE"),
    refusal("RESOURCE_EXHAUSTED", "TOO_MANY_UPLOADS", 0.01),
    refusal("INVALID_ARGUMENT", "CORRUPT_SHARD"),
    refusal("FAILED_PRECONDITION", "UPLOAD_OFFSET"),
]
LASTING = [
    refusal("RESOURCE_EXHAUSTED", "ANCHOR_STORE_FULL"),
    refusal("INVALID_ARGUMENT", "INVALID_FIELD"),
    refusal("ALREADY_EXISTS", "REQUEST_ID_REUSED"),
]


def test_what_passes_is_waited_for(side: Any) -> None:
    """After each refusal the upload goes on with what is not stored, and sends nothing twice."""
    side.server.refusals["UploadAnchors"].extend(PASSING)
    assert upload(side, anchors()).digest == DIGEST
    assert [shard.offset for shard in side.server.shards] == [0]
    assert {shard.frame_compression for shard in side.server.shards} == {pb.COMPRESSION_ZLIB}
    assert len(side.server.headers) == 1 + len(PASSING)
    assert len({header.request_id for header in side.server.headers}) == 1


@pytest.mark.parametrize("refused", LASTING, ids=lambda refused: str(refused.code))
def test_what_does_not_pass_is_raised_with_the_uploads_name(side: Any, refused: Any) -> None:
    side.server.refusals["UploadAnchors"].append(refused)
    with pytest.raises(errors.AcpcError, match="told to") as caught:
        upload(side, anchors(), request_id="named")
    assert caught.value.request_id == "named"
    assert len(side.server.headers) == 1
    again = upload(type(side)(side.target, side.server), anchors(), request_id="named")
    assert again.digest == DIGEST and len(side.server.shards) == 1, "another process goes on"


def test_an_upload_that_the_server_forgot_begins_again(side: Any) -> None:
    side.server.forgets = 1
    assert upload(side, anchors()).digest == DIGEST
    assert [shard.offset for shard in side.server.shards] == [0, 0]


def test_a_set_that_is_not_what_was_sent_is_refused(side: Any) -> None:
    side.server.lies = True
    with pytest.raises(errors.DataLoss, match=f"has digest {DIGEST}"):
        upload(side, anchors())


class Unreadable:
    """Frames that end their reader at the second slice, once they are sent."""

    shape, dtype, read = ARRAYS["frames"].shape, ARRAYS["frames"].dtype, 0

    def __getitem__(self, part: slice) -> Any:
        self.read += 1
        if self.read > 1:
            raise ZeroDivisionError
        return ARRAYS["frames"][part]


def test_what_the_callers_arrays_raise_is_raised(side: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        upload(side, anchors(frames=Unreadable()))


BAD = [
    ("history", {"history": 0}),
    ("history", {"history": 5}),
    ("frames", {"frames": ARRAYS["frames"].astype(np.float32)}),
    ("action_blocks", {"action_blocks": ARRAYS["action_blocks"][:, :3]}),
]


@pytest.mark.parametrize(("field", "changed"), BAD)
def test_arrays_that_do_not_fit_are_told_before_anything_is_sent(
    field: str, changed: dict[str, Any]
) -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        AnchorArrays(**{"history": 2, **ARRAYS, **changed})
    assert caught.value.field == f"anchors.{field}"


def write(path: Path, form: str, arrays: dict[str, Any]) -> Path:
    if form == "folder":
        path.mkdir()
        for name, array in arrays.items():
            np.save(path / f"{name}.npy", array)
        return path
    save = np.savez_compressed if form == "deflated" else np.savez
    save(path.with_suffix(".npz"), **arrays)
    return path.with_suffix(".npz")


@pytest.mark.parametrize("form", ["plain", "deflated", "folder"])
def test_files_hold_what_arrays_hold(tmp_path: Path, form: str) -> None:
    loaded = load_anchors(write(tmp_path / "a", form, {**ARRAYS, "history": np.array(2)}))
    assert (len(loaded), loaded.history, loaded.horizon) == (COUNT, 2, 3)
    assert digest_of(loaded) == digest_of(loaded) == DIGEST  # read twice, from the start
    np.testing.assert_array_equal(loaded.frames[15:18], ARRAYS["frames"][15:18])
    np.testing.assert_array_equal(loaded.frames[2:5], ARRAYS["frames"][2:5])
    bare = {name: ARRAYS[name] for name in ARRAYS if name != "trajectory_ids"}
    other = load_anchors(write(tmp_path / "b", form, bare), history=4)
    assert (other.history, other.trajectory_ids) == (4, None)
    assert load_anchors(write(tmp_path / "c", form, bare)).history == 3


@pytest.mark.parametrize("form", ["plain", "deflated"])
def test_a_file_larger_than_memory_is_read_in_slices(tmp_path: Path, form: str) -> None:
    grey = np.arange(20, dtype=np.uint8)[:, None, None, None, None]
    frames = np.broadcast_to(grey, (20, 5, *LARGE, 3))  # 53 MB
    many = {**anchor_wire.anchor_arrays(20), "frames": frames}
    path = write(tmp_path / "large", form, many)
    tracemalloc.start()
    digest = digest_of(load_anchors(path, history=2))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert digest == anchor_wire.digest(many)
    assert peak < frames.nbytes / 2


def test_files_that_are_no_anchors_say_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("nothing")
    np.save(tmp_path / "one.npy", ARRAYS["labels"])
    fortran = {**ARRAYS, "frames": np.asfortranarray(ARRAYS["frames"])}
    pickled = {**ARRAYS, "labels": np.array([object()])}
    damaged = write(tmp_path / "damaged", "deflated", ARRAYS)
    data = bytearray(damaged.read_bytes())
    data[2000] ^= 0xFF
    damaged.write_bytes(data)
    cases = [
        (tmp_path / "text.npz", "cannot be read"),
        (tmp_path / "one.npy", "cannot be read"),
        (tmp_path / "absent.npz", "cannot be read"),
        (write(tmp_path / "f", "plain", fortran), "C order"),
        (write(tmp_path / "p", "plain", pickled), "cannot be read"),
        (write(tmp_path / "m", "plain", {"frames": ARRAYS["frames"]}), "missing action_blocks"),
        (write(tmp_path / "u", "plain", {**ARRAYS, "extra": np.zeros(2)}), "unknown extra"),
    ]
    for path, message in cases:
        with pytest.raises(errors.ArgumentError, match=message):
            load_anchors(path)
    with pytest.raises(errors.ArgumentError, match="damaged"):
        digest_of(load_anchors(damaged))
