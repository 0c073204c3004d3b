"""A volume that is full ends an upload in words, and nothing half-written counts."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from acpc_server.errors import ResourceExhausted
from anchor_batches import COUNT, anchors, header, part, put, store


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process grows beyond a size, as on a volume with so much room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def files(root: Path) -> set[str]:
    return {path.name for path in (root / "anchors").rglob("*") if path.is_file()} - {"lock"}


@pytest.mark.parametrize(("room", "left"), [(10, set()), (2000, {"header.json"})])
def test_an_upload_on_a_full_volume(tmp_path: Path, room: int, left: set[str]) -> None:
    where = store(tmp_path)
    with largest_file(room):
        with pytest.raises(ResourceExhausted, match="volume of the anchor sets is full") as caught:
            put(where, anchors(), header())
        assert caught.value.reason == "ANCHOR_VOLUME_FULL"
        assert files(tmp_path) == left
        assert where.list() == []
    assert put(where, anchors(), header()).anchors == COUNT


def test_a_volume_that_fills_up_before_the_last_file(tmp_path: Path) -> None:
    """The shards are stored; what joins them is not."""
    where = store(tmp_path)
    with where.upload(header()) as upload:
        for start in range(0, COUNT, 4):
            upload.append(part(anchors(), start, min(start + 4, COUNT)))
        with largest_file(500), pytest.raises(ResourceExhausted, match="volume"):
            upload.finish()
    assert not [name for name in files(tmp_path) if name.endswith(".part")]
    assert where.list() == []
    assert where.progress("mine") == (COUNT, None), "the upload goes on where it was"
    with where.upload(header()) as upload:
        assert upload.finish().digest == anchors().digest
