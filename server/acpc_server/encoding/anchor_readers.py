"""Opens the anchors of jobs, from a dataset or from a stored set."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from acpc.contract import AnchorSample, AnchorSource, Reading
from acpc.datasets import window_future_frames

from acpc_server.data import FRAMES, Anchors, DatasetStore, FileAnchors
from acpc_server.data.anchor_sets import AnchorStore
from acpc_server.errors import AcpcError, FailedPrecondition, InvalidArgument, NotFound, below
from acpc_server.models import ModelCard, check_actions
from acpc_server.numerics import Check, go_on

T = TypeVar("T")
# Readers kept: consecutive jobs of a sweep use the same anchors, and a job may have a set and its
# dataset measured in turn. Each holds up to 256 MiB of frames.
KEPT = 2


@dataclass(frozen=True)
class AnchorSetSource:
    """Anchors of a stored set, by the digest of their content, which decides the rest.

    ``window_future_frames`` and ``sample`` describe the windows that they were drawn from; unknown
    for an upload.
    """

    digest: str
    count: int
    window_future_frames: int | None = field(default=None, compare=False)
    sample: AnchorSample = field(default=AnchorSample.SERVER_DEFAULT, compare=False)


AnySource: TypeAlias = AnchorSource | AnchorSetSource
"""Where the anchors of a job come from."""
_Asked: TypeAlias = tuple[AnySource, int, int, int | None]
"""What is read: of what, history, horizon, and the windows of a set, which may be made again with
them known."""
_OR_EVERY = ", or one with the states and labels of every future frame"


class _Kept(NamedTuple):
    """A reader, and the stamp of its data where it was known before they were read."""

    asked: _Asked
    stamp: str
    anchors: Anchors


@dataclass(eq=False)
class AnchorReaders:
    """Opens anchors for jobs, and checks that they have not changed."""

    _datasets: DatasetStore
    _sets: AnchorStore
    _kept: list[_Kept] = field(default_factory=list)  # latest first
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def named_set(self, digest: str) -> AnchorSetSource:
        """Return the source of a set by its digest, or another name of it.

        Raises InvalidArgument: No name of a set, or of several; the field is ``digest``; NotFound:
        There is no such set.
        """
        info = self._sets.get(digest).info
        drawn = (info.source.window_future_frames, info.source.sample) if info.source else ()
        return AnchorSetSource(info.digest, info.anchors, *drawn)

    def reading(self, source: AnySource) -> Reading:
        """Return the default reading: that of the source's task file, or the paper's.

        Raises InvalidArgument, NotFound, PermissionDenied, FailedPrecondition: No such task.
        """
        if isinstance(source, AnchorSetSource):
            drawn = self._sets.get(source.digest).info.source
            with suppress(AcpcError):
                return self._datasets.reading(drawn.task) if drawn else Reading.PAPER
            return Reading.PAPER
        with below("dataset"):
            return self._datasets.reading(source.task)

    def check(
        self, source: AnySource, card: ModelCard, *, history: int, horizon: int, exact: bool = True
    ) -> None:
        """Reject anchors that cannot be used, before a job is queued.

        ``exact`` also rejects a set that has more frames of history, or more future ones without
        the states and labels of each. Raises InvalidArgument: They do not fit; names ``anchor_set``
        or the field below ``dataset``; NotFound, PermissionDenied, FailedPrecondition: They cannot
        be used.
        """
        if isinstance(source, AnchorSetSource):
            self._check_set(source, card, history, horizon, exact)
        else:
            with below("dataset"):
                self._check_dataset(source, card, history, horizon)

    def offered(self, source: AnchorSource, *, history: int, horizon: int) -> int:
        """Return how many anchors there are to draw.

        Raises InvalidArgument, NotFound, PermissionDenied, FailedPrecondition: It cannot be used.
        """
        with below("dataset"):
            return self._datasets.fit(source, history=history, horizon=horizon).anchors

    def given(
        self, source: AnySource, arrays: Iterable[tuple[str, str]], count: int, field: str
    ) -> dict[str, str]:
        """Return digests of groups of given views or directions, by group.

        Of each group its array's name, and the field that names it. Raises InvalidArgument: The
        anchors have no such group; or, naming ``field``, fewer than ``count`` views in it.
        """
        found = {}
        for name, path in arrays:
            what, _, group = name.partition("/")
            if not isinstance(source, AnchorSetSource):
                raise InvalidArgument(
                    path,
                    f"a dataset's anchors have no given {what}; upload an anchor set with them",
                )
            extras = {x.name: x for x in self._sets.get(source.digest).info.extras}
            if name not in extras:
                prefix = f"{what}/"
                groups = [x.removeprefix(prefix) for x in extras if x.startswith(prefix)]
                there = f"it has {', '.join(groups)}" if groups else "it has none"
                raise InvalidArgument(
                    path, f"the anchor set has no group of {what} {group!r}; {there}"
                )
            if count > (most := extras[name].shape[0]):
                raise InvalidArgument(
                    field,
                    f"is {count}, but the group {group!r} of the anchor set has {most} {what} of "
                    f"each history; ask for at most {most}",
                )
            found[group] = extras[name].digest
        return found

    def _check_dataset(
        self, source: AnchorSource, card: ModelCard, history: int, horizon: int
    ) -> None:
        fit = self._datasets.fit(source, history=history, horizon=horizon)
        check_actions(card, frameskip=fit.frameskip, action_dim=fit.action_dim)
        if card.proprio_dim and fit.proprio_dim != card.proprio_dim:
            has = f"a column of width {fit.proprio_dim}" if fit.proprio_dim else "no column of it"
            raise InvalidArgument(
                "task",
                f"names {has}, but the checkpoint's frames come with proprioception of width "
                f"{card.proprio_dim}; give a task file with the key 'proprio'",
                reason="PROPRIO_MISMATCH",
            )
        if fit.anchors < source.count:
            what = "episodes with a window" if source.by_episode else "windows"
            raise InvalidArgument(
                "count",
                f"{source.count} anchors asked for, but {source.dataset} has only {fit.anchors} "
                f"{what} of {history} + {window_future_frames(source, horizon)} frames",
            )

    def _check_set(
        self, source: AnchorSetSource, card: ModelCard, history: int, horizon: int, exact: bool
    ) -> None:
        info = self._sets.get(source.digest).info
        if info.action_block_dim != card.action_block_dim:
            raise InvalidArgument(
                "anchor_set",
                f"its action blocks are {info.action_block_dim} wide, but the checkpoint expects "
                f"frameskip x action_dim = {card.action_block_dim}; make a set for this frameskip",
            )
        has = {array.name: array.shape[-1] for array in info.extras}.get("proprio", 0)
        if card.proprio_dim and has != card.proprio_dim:
            raise InvalidArgument(
                "anchor_set",
                f"its frames have {has} coordinates of proprioception, but the checkpoint expects "
                f"{card.proprio_dim}; upload a set with 'proprio', or draw one for a task that "
                "names its column",
                reason="PROPRIO_MISMATCH",
            )
        for what, found, wanted, hint in (
            ("frames of history", info.history, history, ""),
            ("future frames", info.horizon, horizon, _OR_EVERY),
        ):
            cut = hint and info.endpoints_digest
            if found < wanted or (exact and found > wanted and not cut):
                raise InvalidArgument(
                    "anchor_set",
                    f"its anchors have {found} {what}, but this job needs {wanted}; make a set "
                    f"with {wanted}{hint if found > wanted else ''}",
                )

    def stamp(self, source: AnySource) -> str:
        """Return what changes when the data is replaced or written to; of a set, its digest.

        Raises InvalidArgument, NotFound, PermissionDenied, FailedPrecondition: It cannot be found.
        """
        if isinstance(source, AnchorSetSource):
            return source.digest
        return self._datasets.stamp(source.dataset, source.task)

    def open(
        self,
        source: AnySource,
        stamp: str,
        *,
        history: int,
        horizon: int,
        check: Check,
        known: dict[str, Any] | None = None,
    ) -> tuple[Anchors, dict[str, Any]]:
        """Open anchors, and return the identity by which :meth:`reopen` checks them.

        ``stamp`` is that of the job's acceptance; ``known`` the identity of the first of them,
        whose frames need not be read again. Raises FailedPrecondition: The dataset has changed
        since, or the set is gone.
        """
        asked = self._asked(source, history, horizon)
        self._require(source, stamp)
        kept = (one.anchors for one in self._kept if (one.asked, one.stamp) == (asked, stamp))
        anchors = next(kept, None) or self._read(asked, known, check)
        self._require(source, stamp)  # it may have been replaced while it was read
        self._keep(_Kept(asked, stamp, anchors))
        frames = anchors.digests(FRAMES) if isinstance(anchors, FileAnchors) else b""
        return anchors, {"digest": anchors.digest, "frames": base64.b64encode(frames).decode()}

    def reopen(
        self, source: AnySource, identity: dict[str, Any], *, history: int, horizon: int
    ) -> Anchors:
        """Open the anchors that :meth:`open` identified, in this process or another.

        Checks frames as they are read, the rest now. Raises FailedPrecondition: The dataset has
        changed since, or the set is gone.
        """
        asked, digest = self._asked(source, history, horizon), identity["digest"]
        # By its digest, not by the stamp: what is read here may not be what the file holds now.
        same = (x for x in self._kept if x.asked == asked and x.anchors.digest == digest)
        kept = next(same, None) or _Kept(asked, "", self._read(asked, identity, go_on))
        if kept.anchors.digest != digest:
            raise _changed(source)
        self._keep(kept)
        return kept.anchors

    def _asked(self, source: AnySource, history: int, horizon: int) -> _Asked:
        """Return what is to be read; a set is in use from now on."""
        windows = None
        if isinstance(source, AnchorSetSource):
            windows = _of_set(source, partial(self._sets.get, use=True)).info.windows
        return source, history, horizon, windows

    def _read(self, asked: _Asked, known: dict[str, Any] | None, check: Check) -> Anchors:
        source, history, horizon, _ = asked
        if isinstance(source, AnchorSetSource):
            return _of_set(source, self._sets.open).first(source.count)
        frames = base64.b64decode(known["frames"]) if known else b""
        return self._datasets.anchors(
            source, history=history, horizon=horizon, frame_digests=frames, check=check
        )

    def _require(self, source: AnySource, stamp: str) -> None:
        if self.stamp(source) != stamp:
            raise _changed(source)

    def _keep(self, latest: _Kept) -> None:
        with self._lock:
            others = [one for one in self._kept if one.anchors is not latest.anchors]
            self._kept = [latest, *others][:KEPT]


def _changed(source: AnySource) -> FailedPrecondition:
    name = source.dataset if isinstance(source, AnchorSource) else source.digest
    return FailedPrecondition(
        f"dataset {name!r} or its task file has changed since the job was submitted; submit it "
        "again",
        reason="DATASET_CHANGED",
    )


def _of_set(source: AnchorSetSource, read: Callable[[str], T]) -> T:
    try:
        return read(source.digest)
    except NotFound as error:
        raise FailedPrecondition(
            f"anchor set {source.digest} was deleted; upload it again and submit the job again",
            reason="ANCHOR_SET_DELETED",
        ) from error
