"""Whose name a Unix socket may take, and who may open it."""

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest
from acpc_server.errors import FailedPrecondition
from acpc_server.rpc import claimed, forget, unix_sockets


@pytest.fixture
def path() -> Iterator[Path]:
    """A name that is short enough wherever temporary folders are."""
    with TemporaryDirectory(prefix="acpc") as folder:
        yield Path(folder) / "acpc.sock"


def listening(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


def test_mode_and_group_are_as_asked_and_nobody_opens_it_before(path: Path) -> None:
    mask = os.umask(0)
    try:
        with claimed(path, 0o660, str(os.getgid())) as name, listening(name):
            assert stat.S_IMODE(name.stat().st_mode) == 0o600
            assert not path.exists()
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert path.stat().st_gid == os.getgid()
        assert os.umask(0) == 0
    finally:
        os.umask(mask)


def test_what_a_dead_server_left_is_replaced(path: Path) -> None:
    listening(path).close()
    assert path.is_socket()
    with claimed(path, 0o600, "") as name, listening(name):
        pass
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("taken", [False, True])
def test_who_stops_removes_its_socket_and_no_other(path: Path, taken: bool) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    with claimed(path, 0o600, "") as name:
        server.add_insecure_port(f"unix:{name}")
    server.start()
    with contextlib.ExitStack() as others:
        inode = path.lstat().st_ino
        if taken:  # by hand, as nothing else can while the server lives
            path.unlink()
            others.enter_context(listening(path))
        forget(path, inode)
        server.stop(None).wait()
        assert path.is_socket() == taken


def test_a_living_servers_name_is_refused(path: Path) -> None:
    with listening(path):
        with (
            pytest.raises(FailedPrecondition, match="another server listens there"),
            claimed(path, 0o600, ""),
        ):
            pytest.fail("it was given away")
        assert path.is_socket()


def test_files_that_are_no_sockets_are_left(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(FailedPrecondition, match="no socket"), claimed(path, 0o600, ""):
        pytest.fail("it was given away")
    assert path.read_text() == "precious"


def test_a_folder_or_a_group_that_is_not_there_is_told(path: Path) -> None:
    with (
        pytest.raises(FailedPrecondition, match="No such file"),
        claimed(path.parent / "nowhere" / "acpc.sock", 0o600, ""),
    ):
        pytest.fail("it has no folder")
    with (
        pytest.raises(FailedPrecondition, match="planners"),
        claimed(path, 0o600, "planners-") as name,
    ):
        listening(name).close()


def test_a_folder_that_another_holds_is_told_in_words(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_sockets, "LOCK_SECONDS", 0.1)
    holder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with (
            pytest.raises(FailedPrecondition, match=f"flock.*{path.parent}.*folder of its own"),
            claimed(path, 0o600, ""),
        ):
            pytest.fail("it was given away")
    finally:
        os.close(holder)
    with claimed(path, 0o600, "") as name, listening(name):
        assert name.is_socket()
