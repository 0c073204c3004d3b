"""Anchor sets belong to tenants: nothing of one shows in those of another."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acpc_server.data.anchor_sets import AnchorStore
from acpc_server.errors import NotFound, ResourceExhausted
from anchor_batches import COUNT, anchors, header, part, put, store, unused

HOSTILE = ["..", "../../x", "a/b", "A", "a", "a\0b", "ä" * 200, "." * 300, "con", " "]


def test_the_tenant_without_a_name_keeps_its_folders(tmp_path: Path) -> None:
    where = store(tmp_path)
    digest = put(where.of(""), anchors(), header()).digest
    assert (tmp_path / "anchors/sets" / digest / "set.json").exists()
    assert not (tmp_path / "anchors/tenants").exists()


@pytest.mark.parametrize(
    "ask",
    [
        lambda where, digest: where.get(digest),
        lambda where, digest: where.open(digest),
        lambda where, digest: where.touch(digest),
        lambda where, digest: where.delete(digest, lambda _: True),
        lambda where, _: where.progress("mine"),
    ],
)
def test_another_s_set_is_not_found_as_one_that_never_was(
    tmp_path: Path, ask: Callable[[AnchorStore, str], Any]
) -> None:
    where = store(tmp_path)
    digest = put(where.of("a"), anchors(), header()).digest
    said = []
    for tenant, asked in (("b", digest), ("", digest), ("b", "0" * 64)):
        with pytest.raises(NotFound) as caught:
            ask(where.of(tenant), asked)
        said.append(str(caught.value).replace(asked, "<digest>"))
    assert len(set(said)) == 1
    assert where.of("b").list() == where.list() == []


def test_equal_content_of_two_tenants_is_stored_twice_and_deleted_apart(tmp_path: Path) -> None:
    where = store(tmp_path)
    digests = {put(where.of(tenant), anchors(), header()).digest for tenant in ("a", "b", "")}
    (digest,) = digests
    with where.of("c").upload(header("x", expected_digest=digest)) as upload:
        assert upload.finished is None, "what others have stored spares nobody the sending"
    where.of("a").delete(digest, unused)
    with pytest.raises(NotFound):
        where.of("a").get(digest)
    for tenant in ("b", ""):
        assert where.of(tenant).open(digest).count == COUNT


def test_request_ids_are_each_tenant_s_own(tmp_path: Path) -> None:
    where = store(tmp_path)
    with where.of("a").upload(header()) as first:
        first.append(part(anchors(), 0, 4))
        with where.of("b").upload(header(description="other")) as second:
            assert second.next_offset == 0
    assert where.of("a").progress("mine") == (4, None)


def test_names_that_are_no_names_of_folders_stay_apart_and_below(tmp_path: Path) -> None:
    where = store(tmp_path, store_bytes=2**26)
    for number, tenant in enumerate(HOSTILE):
        put(where.of(tenant), anchors(2, seed=number), header(anchors=2))
    assert {path.name for path in tmp_path.iterdir()} == {"anchors"}
    for number, tenant in enumerate(HOSTILE):
        (found,) = where.of(tenant).list()
        assert found.info.digest == anchors(2, seed=number).digest


def test_a_tenant_s_quota_is_its_own(tmp_path: Path) -> None:
    size = put(store(tmp_path).of("other"), anchors(), header()).size_bytes
    where = store(tmp_path, tenant_bytes=size * 3 // 2)
    put(where.of("a"), anchors(), header())
    with pytest.raises(ResourceExhausted, match="over your quota of") as caught:
        put(where.of("a"), anchors(seed=1), header("b"), COUNT)
    assert caught.value.reason == "ANCHOR_QUOTA"
    assert str(size * 3 // 2) in str(caught.value)
    put(where.of("a", size * 3), anchors(seed=1), header("b"), COUNT)  # a quota of its own
    put(where.of("b"), anchors(seed=1), header("b"), COUNT)
    where.of("b").delete(anchors(seed=1).digest, unused)
    put(where.of("b"), anchors(seed=2), header("c"), COUNT)


def test_the_store_s_limit_counts_all_tenants(tmp_path: Path) -> None:
    size = put(store(tmp_path).of("a"), anchors(), header()).size_bytes
    where = store(tmp_path, store_bytes=size * 3 // 2)
    with pytest.raises(ResourceExhausted) as caught:
        put(where.of("b"), anchors(), header(), COUNT)
    assert caught.value.reason == "ANCHOR_STORE_FULL"


def test_tidying_removes_what_any_tenant_left(tmp_path: Path) -> None:
    where = store(tmp_path)
    digest = put(where.of("a"), anchors(), header()).digest
    with where.of("b").upload(header()) as upload:
        upload.append(part(anchors(), 0, 4))
    for path in (tmp_path / "anchors").rglob("*"):
        os.utime(path, (1, 1))
    where.tidy(lambda asked: asked == digest)
    assert len(where.of("a").list()) == 1
    with pytest.raises(NotFound):
        where.of("b").progress("mine")
    for path in (tmp_path / "anchors").rglob("set.json"):
        os.utime(path, (1, 1))
    where.tidy(unused)
    assert where.of("a").list() == []


def test_a_folder_that_vanishes_while_the_store_is_counted_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing of a folder and that of the one in it, another call finishes."""
    where = store(tmp_path)
    with where.upload(header()) as upload:
        upload.append(part(anchors(), 0, 4))
    (folder,) = (tmp_path / "anchors/uploads").iterdir()
    inner, scandir = folder / "set", os.scandir

    def vanishing(path: object) -> object:
        if str(path) == str(inner) and inner.exists():
            monkeypatch.setattr(os, "scandir", scandir)
            shutil.rmtree(inner)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", vanishing)
    store(tmp_path)  # counts
    assert not inner.exists(), "the folder vanished while it was counted"
