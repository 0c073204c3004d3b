"""Checkpoints are read once, read again when replaced, and dropped oldest first."""

import os
import shutil
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from acpc_server.engine import CheckpointCache
from acpc_server.errors import AcpcError, FailedPrecondition, NotFound, UnsafeCheckpoint
from acpc_server.models.folder import CheckpointLimits
from acpc_server.observe import Metrics
from public_checkpoint import write_checkpoint

MEBIBYTE = 1024 * 1024
# A small checkpoint has 25854 parameters in float32.
ROOM_FOR_TWO = 2 * 4 * 25854 + 1


class Shelf:
    """A checkpoint root with four checkpoints, a cache of it, and its counts."""

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

    def loaded(self) -> set[str]:
        names = {entry.name for entry in self.cache.entries() if entry.model is not None}
        assert len(names) == self.count("acpc_checkpoints_loaded")
        return names


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
    assert shelf.cache._loading == {}, "nothing is kept for checkpoints that are in place"


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
    assert shelf.cache._loading == {}
    (shelf.root / "a" / "weights.pt").write_bytes(good)
    assert shelf.cache.get("a").model.card.family == "lewm"


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
    assert old.model.card.digest in refused.value.message
    assert new.model.card.digest in refused.value.message
    assert shelf.loads == 2


def test_a_touched_file_with_the_same_content_keeps_its_digest(shelf: Shelf) -> None:
    digest = shelf.cache.get("a").model.card.digest
    os.utime(shelf.root / "a" / "weights.pt", ns=(1, 1))
    assert shelf.cache.get("a", digest=digest).model.card.digest == digest
    assert shelf.loads == 2


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


def test_the_least_recently_used_goes_first(shelf: Shelf) -> None:
    for name in ("a", "b", "a"):
        shelf.cache.get(name)
    assert shelf.loaded() == {"a", "b"}, "listing, too, leaves the order alone"
    shelf.cache.get("c")
    assert shelf.loaded() == {"a", "c"}
    shelf.cache.get("d")
    assert shelf.loaded() == {"c", "d"}
    assert shelf.loads == 4


def test_looking_at_a_checkpoint_is_not_using_it(shelf: Shelf) -> None:
    shelf.cache.get("a")
    shelf.cache.get("b")
    shelf.cache.entry("a", "")
    shelf.cache.entries()
    shelf.cache.get("c")
    assert shelf.loaded() == {"b", "c"}


def test_pinned_ones_stay_until_they_are_unloaded(shelf: Shelf) -> None:
    shelf.cache.pin(shelf.cache.get("a"))
    for name in "bcd":
        shelf.cache.get(name)
    assert shelf.loaded() == {"a", "d"}
    assert shelf.cache.entry("a", "").pinned
    status = shelf.cache.unload("a", "")
    assert (status.model, status.pinned) == (None, False)
    assert shelf.loaded() == {"d"}
    shelf.cache.get("a")
    for name in "bc":
        shelf.cache.get(name)
    assert shelf.loaded() == {"b", "c"}, "unloading took the pin away"


def test_a_pin_holds_what_was_dropped_between_loading_and_pinning(shelf: Shelf) -> None:
    first = shelf.cache.get("a")
    for name in "bc":
        shelf.cache.get(name)
    assert "a" not in shelf.loaded()
    shelf.cache.pin(first)
    assert "a" in shelf.loaded()
    assert shelf.cache.get("a") is first


def test_the_newest_stays_even_when_it_alone_is_over_the_budget(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, budget=1)
    for name in "ab":
        shelf.cache.get(name)
        assert shelf.loaded() == {name}
    shelf.cache.pin(shelf.cache.get("b"))
    shelf.cache.get("c")
    assert shelf.loaded() == {"b", "c"}


def test_unloading_frees_the_model_and_work_that_holds_it_goes_on(shelf: Shelf) -> None:
    held = shelf.cache.get("a")
    shelf.cache.unload("a", "")
    assert held.model.encode(torch.zeros(1, 3, 28, 28)).shape == (1, 16)
    gone = weakref.ref(held.model)
    del held
    assert gone() is None
    shelf.cache.unload("a", "")
    assert shelf.loaded() == set()


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
