"""Which files are whole checkpoints, and what they are called."""

import io
import json
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from acpc_client import CheckpointRef
from acpc_lab.watching import Arrival, Finder, WeightsFile
from acpc_server.models import list_checkpoints
from safetensors.numpy import save
from waiting import wait_until
from written_weights import Writer, saved


def names(finder: Finder) -> list[tuple[str, str]]:
    return [(item.ref.name, item.ref.weights) for item in finder.look()]


def epochs(found: list[WeightsFile]) -> list[int | None]:
    return [Arrival(item.ref, "").epoch for item in found]


def test_a_file_that_torch_saved_is_whole_with_its_last_byte(write: Writer, tmp_path: Path) -> None:
    (write.root / "config.json").write_text("{}")
    whole = tmp_path / "whole.pt"
    torch.save({"weight": torch.arange(5000.0)}, whole)
    content = whole.read_bytes()
    target = write.root / "weights_epoch_1.pt"
    finder = Finder(write.root, "runs/7", 3600.0)
    for length in (0, 3, 100, len(content) // 2, len(content) - 22, len(content) - 1):
        target.write_bytes(content[:length])
        assert names(finder) == []
    target.write_bytes(content)
    assert names(finder) == [("runs/7", "weights_epoch_1.pt")]


def test_a_zip_file_inside_a_torn_one_is_not_its_end(write: Writer) -> None:
    (write.root / "a").mkdir()
    (write.root / "a/config.json").write_text("{}")
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("inner.zip", saved("a"))
        archive.writestr("more", "b" * 500)
    content = written.getvalue()
    inner_end = content.index(saved("a")) + len(saved("a"))
    (write.root / "a/weights.pt").write_bytes(content[: inner_end + 100])
    assert names(Finder(write.root, "", 3600.0)) == []


def test_safetensors_are_whole_when_as_long_as_they_say_and_no_longer_changing(
    write: Writer,
) -> None:
    (write.root / "a").mkdir()
    (write.root / "a/config.json").write_text("{}")
    content = save({"weight": np.arange(100.0, dtype=np.float32)})
    finder, patient = Finder(write.root, "", 0.01), Finder(write.root, "", 3600.0)
    for length in (0, 7, 30, len(content) - 1):
        (write.root / "a/model.safetensors").write_bytes(content[:length])
        assert names(finder) == []
    with (write.root / "a/model.safetensors").open("wb") as opened:
        opened.truncate(len(content))  # the public library's writer takes the room first
        opened.write(content[:-8])
        opened.flush()
        assert names(patient) == []
        assert patient.unsettled
        opened.write(content[-8:])
    wait_until(lambda: names(finder) == [("a", "model.safetensors")])
    for size, header in ((2**60, b"{}"), (100_000, b"[" * 100_000)):
        (write.root / "a/model.safetensors").write_bytes(struct.pack("<Q", size) + header)
        assert names(finder) == []


def test_no_clock_is_asked_whether_a_file_is_whole_or_new(write: Writer) -> None:
    finder = Finder(write.root, "", 0.01)
    for year in (0, 2_000_000_000, 4_000_000_000, 1_000_000_000):
        os.utime(write("a"), (year, year))
        assert names(finder) == [("a", "weights.pt")]
        (write.root / "b").mkdir(exist_ok=True)
        (write.root / "b/config.json").write_text("{}")
        (write.root / "b/weights.pt").write_bytes(b"another format")
        os.utime(write.root / "b/weights.pt", (year, year))
        assert ("b", "weights.pt") not in names(finder)
        wait_until(lambda: len(names(finder)) == 2)
        (write.root / "b/weights.pt").unlink()


def test_other_content_of_the_same_size_and_time_is_seen(write: Writer) -> None:
    finder, path = Finder(write.root, "", 0.1), write("a", content="a")
    (before,) = finder.look()
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    probe = write.root / "probe"

    def time_has_moved_on() -> bool:  # file systems tell it in steps
        probe.write_text("")
        return probe.stat().st_ctime_ns > path.stat().st_ctime_ns

    wait_until(time_has_moved_on)
    with path.open("r+b") as opened:  # in place, as rsync --inplace --times does
        opened.write(saved("b"))
    os.utime(path, ns=times)
    (after,) = finder.look()
    assert before.stamp != after.stamp


def test_other_options_are_another_content(write: Writer) -> None:
    """``acpc.json`` says which backbone a checkpoint has, and what its distances weigh."""
    finder, options = Finder(write.root, "", 3600.0), write("a").with_name("acpc.json")
    seen = [(item.stamp, item.digest()) for item in finder.look()]
    for content in ('{"proprio_weight": 1}', '{"proprio_weight": 2.5}'):
        options.write_text(content[:-1])
        assert names(finder) == [], "it is still being written"
        options.write_text(content)
        seen += [(item.stamp, item.digest()) for item in finder.look()]
    assert [len(set(column)) for column in zip(*seen, strict=True)] == [3, 3]
    options.unlink()
    assert [(item.stamp, item.digest()) for item in finder.look()] == seen[:1]
    options.symlink_to("config.json")
    assert names(finder) == []


def test_what_is_torn_and_no_longer_changes_is_named(write: Writer) -> None:
    (write.root / "a").mkdir()
    (write.root / "a/config.json").write_text("{}")
    (write.root / "a/weights.pt").write_bytes(saved("a")[:-30])
    finder = Finder(write.root, "", 0.01)
    assert not finder.look() and finder.torn == {write.root / "a/weights.pt": False}
    wait_until(lambda: not finder.look() and finder.torn == {write.root / "a/weights.pt": True})
    assert not finder.unsettled, "nobody should wait for it"


@pytest.mark.parametrize("config", [None, "", '{"half": ', "[" * 100_000])
def test_a_checkpoint_has_a_whole_configuration(config: str | None, write: Writer) -> None:
    path = write("a").with_name("config.json")
    path.unlink()
    if config is not None:
        path.write_text(config)
    assert names(Finder(write.root, "", 0.1)) == []


def test_hidden_files_links_and_others_are_left_out(tmp_path: Path, write: Writer) -> None:
    weights = write("a")
    write(".hidden")
    (write.root / "a/.tmp.pt").write_bytes(saved("b"))
    (write.root / "a/last.pt").symlink_to(weights)
    for other in ("optimizer.pth", "model_object.ckpt", "notes.txt"):
        (write.root / "a" / other).write_bytes(saved("b"))
    write("raw").with_name("config.json").unlink()
    (write.root / "linked").symlink_to(write.root / "a")
    write(os.fsdecode(b"no-text-\xff"))  # no request could name it
    write("a", os.fsdecode(b"\xff.pt"))
    finder = Finder(write.root, "", 0.1)
    assert names(finder) == [("a", "weights.pt")]
    skipped = {path.relative_to(write.root).as_posix(): why for path, why in finder.skipped.items()}
    assert "symbolic link" in skipped.pop("a/last.pt") and "symbolic link" in skipped.pop("linked")
    assert "no config.json beside it" in skipped.pop("raw/weights.pt")
    assert skipped.keys() == {"a/optimizer.pth", "a/model_object.ckpt"}
    assert all("acpc-server import" in why for why in skipped.values())


def test_what_is_found_is_what_a_server_lists(write: Writer) -> None:
    names_of = ("epoch=0-step=10.ckpt", "a.pt", "b.safetensors", "c.pth", "c_object.ckpt", "d.bin")
    for weights in names_of:
        write("run", weights)
    (write.root / "run/b.safetensors").write_bytes(save({"a": np.zeros(1)}))
    finder = Finder(write.root, "", 0.0)
    wait_until(lambda: len(names(finder)) == 3)
    listed = [(one.name, one.weights) for one in list_checkpoints(write.root)]
    assert sorted(names(finder)) == listed


def test_they_come_by_epoch_and_a_number_of_a_metric_is_none(write: Writer) -> None:
    names_of = {
        "epoch=3-val_loss=0.12.ckpt": 3, "weights_epoch_4.pt": 4, "seed3_epoch_5.ckpt": 5,
        "weights_epoch_9.pt": 9, "epoch=0-step=10.ckpt": 10, "weights_epoch_100.pt": 100,
        "last.ckpt": None, "run-0.ckpt": None, f"weights_{'7' * 200}.pt": None,
    }  # fmt: skip
    for name in reversed(names_of):
        write("run", name)
    write("other/checkpoint-20")
    found = Finder(write.root, "at/server", 0.1).look()
    assert epochs(found) == [3, 4, 5, 9, 10, 20, 100, None, None, None]
    assert found[5].ref == CheckpointRef("at/server/other/checkpoint-20", "weights.pt")
    assert all(item.ref.name != "at/server/run" or names_of[item.ref.weights] == epoch
               for item, epoch in zip(found, epochs(found), strict=True))  # fmt: skip


def test_the_digest_is_of_both_files(write: Writer) -> None:
    write("a")
    write("b")
    write("c", content="c")
    write("d").with_name("config.json").write_text(json.dumps({"family": "pldm"}))
    digests = [item.digest() for item in Finder(write.root, "", 0.1).look()]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
