"""Checkpoints are read once, read again when replaced, and dropped oldest first."""

import hashlib
import os
import shutil
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest
import torch
from acpc_server.engine import CheckpointCache
from acpc_server.errors import AcpcError, FailedPrecondition, NotFound, UnsafeCheckpoint
from acpc_server.models.folder import CheckpointLimits
from acpc_server.observe import Metrics
from public_checkpoint import write_checkpoint

# A small checkpoint has 25854 parameters in float32.
ROOM_FOR_TWO = 2 * 4 * 25854 + 1


class Shelf:
    def __init__(self, root: Path, budget: int = ROOM_FOR_TWO) -> None:
        self.root = root
        for seed, name in enumerate("abcd"):
            write_checkpoint(root / name, seed=seed)
        self.metrics = Metrics()
        self.cache = CheckpointCache(
            root, torch.device("cpu"), self.metrics, limits=CheckpointLimits(), budget_bytes=budget
        )

    def count(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(name)

    @property
    def loads(self) -> float:
        return self.count("acpc_checkpoint_load_seconds_count")

    def loaded(self) -> str:
        found = [entry.name for entry in self.cache.entries() if entry.model is not None]
        assert len(found) == self.count("acpc_checkpoints_loaded")
        return "".join(found)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_sixteen_callers_of_each_checkpoint_read_it_once(shelf: Shelf) -> None:
    start = threading.Barrier(32)

    def get(index: int) -> object:
        start.wait()
        return shelf.cache.get("ab"[index % 2]).model

    with ThreadPoolExecutor(32) as pool:
        models = list(pool.map(get, range(32)))
    assert shelf.loads == 2
    assert len({id(model) for model in models}) == 2


def test_callers_of_a_broken_checkpoint_are_all_refused_and_it_can_be_mended(shelf: Shelf) -> None:
    good = (shelf.root / "a" / "weights.pt").read_bytes()
    (shelf.root / "a" / "weights.pt").write_bytes(good[:-100])

    def get(_: int) -> type[AcpcError] | None:
        try:
            shelf.cache.get("a")
        except AcpcError as error:
            return type(error)
        return None

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(get, range(8))) == {UnsafeCheckpoint}
    (shelf.root / "a" / "weights.pt").write_bytes(good)
    assert shelf.cache.get("a").model.card.family == "lewm"


def test_what_the_files_hold_is_told_and_whether_they_are_whole(shelf: Shelf) -> None:
    """A stamp tells that they were written, the content what they hold: old watches go by it."""
    folder = shelf.root / "a"

    def seen() -> tuple[str, str, str]:
        found, (listed, *_) = shelf.cache.content("a", ""), shelf.cache.entries()
        assert listed.stamp == found.stamp and not listed.content
        return found.stamp, found.content, found.problem

    def digest(*names: str) -> str:
        files = [hashlib.sha256((folder / name).read_bytes()).digest() for name in names]
        return hashlib.sha256(b"".join(files)).hexdigest()

    first = seen()
    assert first[1:] == (digest("config.json", "weights.pt"), "") and seen() == first
    os.utime(folder / "weights.pt", (1, 1))
    assert seen()[0] != first[0] and seen()[1:] == first[1:]
    (folder / "acpc.json").write_text('{"proprio_weight": 2}')
    assert seen()[1:] == (digest("config.json", "acpc.json", "weights.pt"), "")
    (folder / "acpc.json").write_text('{"proprio')
    assert "acpc.json" in seen()[2] and not seen()[1]
    (folder / "acpc.json").unlink()
    for part in ("weights.pt", "config.json"):
        whole = (folder / part).read_bytes()
        for torn in (b"", whole[:100], whole[:-1], whole[: len(whole) // 4] + bytes(2**20)):
            (folder / part).write_bytes(torn)
            assert seen()[1] == "" and part in seen()[2]
        (folder / part).write_bytes(whole)
    with (folder / "weights.pt").open("r+b") as file:  # the room is taken before it is filled
        file.truncate(2**20)
    assert "weights.pt" in seen()[2]
    assert shelf.loads == 0


def test_files_that_change_while_they_are_read_have_a_problem(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = hashlib.file_digest

    def replaced(file: BinaryIO, name: str) -> object:
        write_checkpoint(shelf.root / "a", seed=77)
        return real(file, name)

    monkeypatch.setattr(hashlib, "file_digest", replaced)
    found = shelf.cache.content("a", "")
    assert (found.content, found.problem) == ("", "its files changed while they were read")
    monkeypatch.undo()
    assert shelf.cache.content("a", "").content


def test_replaced_weights_are_read_again_and_pins_of_the_old_digest_refused(shelf: Shelf) -> None:
    old = shelf.cache.get("a")
    assert shelf.cache.get("a", digest=old.model.card.digest) is old
    write_checkpoint(shelf.root / "a", seed=77)
    assert shelf.cache.entry("a", "").model is None, "what is loaded is not what is on disk"
    with pytest.raises(FailedPrecondition) as refused:
        shelf.cache.get("a", digest=old.model.card.digest)
    assert refused.value.reason == "CHECKPOINT_CHANGED"
    new = shelf.cache.get("a")
    assert new.model.card.digest != old.model.card.digest
    assert all(one.model.card.digest in refused.value.message for one in (old, new))
    assert shelf.loads == 2
    os.utime(shelf.root / "a" / "weights.pt", ns=(1, 1))  # the same content
    assert shelf.cache.get("a", digest=new.model.card.digest) is not new
    assert shelf.loads == 3


def test_what_is_at_hand_follows_every_change_of_its_folder(shelf: Shelf) -> None:
    folder, hand = shelf.root / "a", shelf.cache.at_hand
    assert hand("a", "") is None
    held = shelf.cache.get("a")
    assert [hand("a", "") for _ in range(3)] == [held] * 3
    os.utime(folder / "config.json", ns=(1, 1))
    assert hand("a", "") is None
    (folder / "weights.pt").rename(folder / "only.pt")
    held = shelf.cache.get("a")
    assert held.weights == "only.pt"
    assert [hand("a", "") for _ in range(2)] == [held] * 2
    (folder / "weights.pt").write_bytes((folder / "only.pt").read_bytes())
    assert hand("a", "") is None
    assert hand("a", "only.pt") is held
    folder.rename(shelf.root / "away")
    assert hand("a", "only.pt") is None
    for name in ("../a", "a\0", ""):
        assert hand(name, "") is None


# What is done in turn, and what is loaded then: a letter reads a checkpoint, ? looks at it, + pins
# it, - unloads it.
TURNS: dict[str, tuple[int, list[tuple[str, str]]]] = {
    "the least recently used goes first": (
        ROOM_FOR_TWO, [("a b a", "ab"), ("c", "ac"), ("d", "cd")],
    ),
    "looking is not using": (ROOM_FOR_TWO, [("a b ?a c", "bc")]),
    "pinned ones stay until they are unloaded": (
        ROOM_FOR_TWO, [("a +a b c d", "ad"), ("-a", "d"), ("a b c", "bc")],
    ),
    "the newest stays though it alone is over the budget": (
        1, [("a", "a"), ("b", "b"), ("b +b c", "bc")],
    ),
    "unloading what is not loaded changes nothing": (ROOM_FOR_TWO, [("a -a -a", ""), ("a", "a")]),
}  # fmt: skip


@pytest.mark.parametrize("case", TURNS)
def test_what_is_loaded_and_what_goes(tmp_path: Path, case: str) -> None:
    budget, turns = TURNS[case]
    shelf = Shelf(tmp_path, budget)
    for words, loaded in turns:
        for word in words.split():
            what, name = word[:-1], word[-1]
            if what == "-":
                status = shelf.cache.unload(name, "")
                assert (status.model, status.pinned) == (None, False)
            elif what == "?":
                assert shelf.cache.entry(name, "").model is not None
            elif what == "+":
                shelf.cache.pin(shelf.cache.get(name))
                assert shelf.cache.entry(name, "").pinned
            else:
                shelf.cache.get(name)
        assert shelf.loaded() == loaded, words


def test_a_pin_holds_what_was_dropped_between_loading_and_pinning(shelf: Shelf) -> None:
    first = shelf.cache.get("a")
    for name in "bc":
        shelf.cache.get(name)
    assert shelf.loaded() == "bc"
    shelf.cache.pin(first)
    assert shelf.loaded() == "abc"
    assert shelf.cache.get("a") is first


def test_unloading_frees_the_model_and_work_that_holds_it_goes_on(shelf: Shelf) -> None:
    held = shelf.cache.get("a")
    shelf.cache.unload("a", "")
    assert held.model.encode(torch.zeros(1, 3, 28, 28)).shape == (1, 16)
    gone = weakref.ref(held.model)
    del held
    assert gone() is None


def test_a_checkpoint_whose_files_are_gone_can_still_be_unloaded(shelf: Shelf) -> None:
    shelf.cache.pin(shelf.cache.get("a"))
    shutil.rmtree(shelf.root / "a")
    with pytest.raises(NotFound):
        shelf.cache.get("a")
    assert shelf.count("acpc_checkpoints_loaded") == 1
    assert shelf.cache.unload("a", "").model is None
    assert shelf.count("acpc_checkpoints_loaded") == 0
    with pytest.raises(NotFound):
        shelf.cache.unload("a", "")
