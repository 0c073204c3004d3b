"""A job record in SQLite is kept on no network file system."""

import sys
from pathlib import Path

import processes
import pytest
from acpc_server.jobs import network_file_system
from acpc_server.jobs.mounts import network_mount

MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:45 / /home rw,relatime shared:5 - nfs4 filer:/export/home rw,vers=4.2
31 30 8:2 / /home/me/local rw - xfs /dev/sdb1 rw
32 22 0:46 / /mnt/a\040share rw - cifs //win/share rw
33 22 0:47 / /mnt/ssh rw master:1 propagate_from:2 - fuse.sshfs me@host:/ rw
34 22 0:48 / /mnt/gluster rw - fuse.glusterfs vol rw
35 22 0:49 / /mnt/bucket rw - fuse.s3fs s3fs rw
36 22 0:50 / /mnt/ntfs rw - fuseblk /dev/sdc1 rw
37 22 0:51 / /mnt/layers rw - fuse.fuse-overlayfs fuse-overlayfs rw
38 22 0:52 / /run rw - tmpfs tmpfs rw
39 22 0:53 / /srv rw - nfs filer:/srv rw
40 39 0:54 / /srv rw - ext4 /dev/sdd rw
41 22 0:55 / /overlay rw - overlay overlay rw
a line of another kernel
"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/var/lib/acpc/jobs.sqlite", ""),
        ("/home/me/acpc-state/jobs.sqlite", "nfs4, filer:/export/home"),
        ("/home", "nfs4, filer:/export/home"),
        ("/homes/me/jobs.sqlite", ""),
        ("/home/me/local/jobs.sqlite", ""),
        ("/mnt/a share/state/jobs.sqlite", "cifs, //win/share"),
        ("/mnt/ssh/jobs.sqlite", "fuse.sshfs, me@host:/"),
        ("/mnt/gluster/jobs.sqlite", "fuse.glusterfs, vol"),
        ("/mnt/bucket/jobs.sqlite", "fuse.s3fs, s3fs"),
        ("/mnt/ntfs/jobs.sqlite", ""),
        ("/mnt/layers/jobs.sqlite", ""),
        ("/run/acpc/jobs.sqlite", ""),
        ("/srv/jobs.sqlite", ""),
        ("/overlay/jobs.sqlite", ""),
    ],
)
def test_the_mount_that_a_file_lies_on_decides(path: str, found: str) -> None:
    assert network_mount(path, MOUNTS) == found


def test_without_a_table_of_mounts_nothing_is_known() -> None:
    assert network_mount("/home/me", "") == ""


def test_a_folder_of_this_host_passes(tmp_path: Path) -> None:
    assert network_file_system(tmp_path / "jobs.sqlite") == ""


# In a namespace of its own, where what it mounts ends with it. Nobody serves the mount.
MOUNTED = """
import ctypes, os, sys
call = ctypes.CDLL(None)
if call.unshare(0x20000):
    sys.exit(77)
call.mount(b"none", b"/", None, 0x44000, None)
try:
    fd = os.open("/dev/fuse", os.O_RDWR)
except OSError:
    sys.exit(77)
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
if call.mount(b"me@host:/", sys.argv[1].encode(), b"fuse.sshfs", 0, options):
    sys.exit(77)
os.close(fd)
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.process
def test_a_server_is_not_started_on_one(tmp_path: Path) -> None:
    (mounted := tmp_path / "mounted").mkdir()
    record = mounted / "state/jobs.sqlite"
    roots = ["--checkpoint-root", tmp_path, "--dataset-root", tmp_path]
    where = ["--state-dir", tmp_path / "state", "--jobs-url", f"sqlite:///{record}"]
    server = [Path(sys.executable).with_name("acpc-server"), "serve", "--port", 0, *roots, *where]
    command = [sys.executable, "-c", MOUNTED, mounted, *server]
    refused = processes.run([str(word) for word in command], check=False)
    if refused.returncode == 77:
        pytest.skip("this user may not mount")
    assert refused.returncode == 1, refused.stderr
    last = refused.stderr.splitlines()[-1]
    assert last.startswith(f"FAILED_PRECONDITION: the job record {record} lies on a network file")
    assert "fuse.sshfs, me@host:/" in last and "--state-dir" in last and "--jobs-url" in last
