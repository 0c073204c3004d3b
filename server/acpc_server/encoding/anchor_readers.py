"""Opens the anchors of jobs, from a dataset or from a stored set."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from acpc.contract import (
    DIRECTIONS,
    VIEWS,
    AnchorSample,
    AnchorSource,
    GivenViews,
    Reading,
    SensitivityStudy,
    VisualChange,
)
from acpc.datasets import window_future_frames

from acpc_server.data import (
    FRAMES,
    Anchors,
    DatasetFit,
    DatasetStore,
    FileAnchors,
    check_anchor,
)
from acpc_server.data.anchor_sets import AnchorStore
from acpc_server.errors import AcpcError, FailedPrecondition, InvalidArgument, NotFound, below
from acpc_server.models import ModelCard, check_actions
from acpc_server.numerics import Check, go_on

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
_OR_EVERY = ", or one with the states and labels of every future frame"


class _Asked(NamedTuple):
    """What is read: ``windows`` are those of a set, which may be made again with them known."""

    source: AnySource
    history: int
    horizon: int
    windows: int | None


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
            return
        with below("dataset"):
            self._check_dataset(source, card, history, horizon)

    def offered(self, source: AnchorSource, *, history: int, horizon: int) -> int:
        """Return how many anchors there are to draw.

        Raises InvalidArgument, NotFound, PermissionDenied, FailedPrecondition: It cannot be used.
        """
        with below("dataset"):
            fit = self._fit(source, history, horizon)
        return fit.episodes if source.by_episode else fit.windows

    def _fit(self, source: AnchorSource, history: int, horizon: int) -> DatasetFit:
        return self._datasets.fit(
            source.dataset,
            source.task,
            steps=history + window_future_frames(source, horizon),
            frameskip=source.frameskip,
            episodes=source.episodes,
        )

    def given_views(
        self, source: AnySource, shifts: Sequence[VisualChange], draws: int, fields: tuple[str, str]
    ) -> dict[str, str]:
        """Return digests of the groups of given views among a job's shifts, by group.

        ``fields`` are the path of a shift in the request, with its index as ``{}``, and of draws.
        Raises InvalidArgument: The anchors have no such group, or fewer views in it.
        """
        found: dict[str, str] = {}
        for index, shift in enumerate(shifts):
            if isinstance(shift, GivenViews):
                paths = f"{fields[0].format(index)}.{shift.kind}.group", fields[1]
                found[shift.group] = self._group(source, VIEWS, shift.group, draws, paths)
        return found

    def given_directions(self, source: AnySource, study: SensitivityStudy) -> dict[str, str]:
        """Return the digest of a study's group of directions, by group; none for random ones.

        Raises InvalidArgument: The anchors have no such group, or fewer directions in it.
        """
        fields = f"{study.kind}.directions", f"{study.kind}.probes"
        group = study.directions
        if not group:
            return {}
        return {group: self._group(source, DIRECTIONS, group, study.probes, fields)}

    def _group(
        self, source: AnySource, prefix: str, group: str, count: int, fields: tuple[str, str]
    ) -> str:
        """Return the digest of a group; ``fields`` are those of its name and of ``count``."""
        what = prefix.removesuffix("/")
        if not isinstance(source, AnchorSetSource):
            raise InvalidArgument(
                fields[0],
                f"a dataset's anchors have no given {what}; upload an anchor set with them",
            )
        arrays = {x.name: x for x in self._sets.get(source.digest).info.extras}
        array = arrays.get(f"{prefix}{group}")
        if array is None:
            groups = [x.removeprefix(prefix) for x in arrays if x.startswith(prefix)]
            there = f"it has {', '.join(groups)}" if groups else "it has none"
            raise InvalidArgument(
                fields[0], f"the anchor set has no group of {what} {group!r}; {there}"
            )
        if count > array.shape[0]:
            raise InvalidArgument(
                fields[1],
                f"is {count}, but the group {group!r} of the anchor set has {array.shape[0]} "
                f"{what} of each history; ask for at most {array.shape[0]}",
            )
        return array.digest

    def _check_dataset(
        self, source: AnchorSource, card: ModelCard, history: int, horizon: int
    ) -> None:
        fit = self._fit(source, history, horizon)
        check_anchor(history + horizon, fit.frame_size, "dataset")
        check_actions(card, frameskip=fit.frameskip, action_dim=fit.action_dim)
        if card.proprio_dim and fit.proprio_dim != card.proprio_dim:
            has = f"a column of width {fit.proprio_dim}" if fit.proprio_dim else "no column of it"
            raise InvalidArgument(
                "task",
                f"names {has}, but the checkpoint's frames come with proprioception of width "
                f"{card.proprio_dim}; give a task file with the key 'proprio'",
                reason="PROPRIO_MISMATCH",
            )
        found, what = fit.windows, "windows"
        if source.by_episode:
            found, what = fit.episodes, "episodes with a window"
        if found < source.count:
            raise InvalidArgument(
                "count",
                f"{source.count} anchors asked for, but {source.dataset} has only {found} {what} "
                f"of {history} + {window_future_frames(source, horizon)} frames",
            )

    def _check_set(
        self, source: AnchorSetSource, card: ModelCard, history: int, horizon: int, exact: bool
    ) -> None:
        info = self._sets.get(source.digest).info
        check_anchor(info.history + info.horizon, (info.height, info.width), "anchor_set")
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
        asked = _Asked(source, history, horizon, self._touch(source))
        self._require(source, stamp)
        frames = base64.b64decode(known["frames"]) if known else b""
        kept = self._find(asked, lambda one: one.stamp == stamp)
        anchors = kept.anchors if kept else self._read(asked, frames, check)
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
        asked = _Asked(source, history, horizon, self._touch(source))
        # By its digest, not by the stamp: what is read here may not be what the file holds now.
        kept = self._find(asked, lambda one: one.anchors.digest == identity["digest"])
        if kept is None:
            frames = base64.b64decode(identity["frames"])
            kept = _Kept(asked, "", self._read(asked, frames, go_on))
        if kept.anchors.digest != identity["digest"]:
            raise _changed(source)
        self._keep(kept)
        return kept.anchors

    def _read(self, asked: _Asked, frame_digests: bytes, check: Check) -> Anchors:
        source = asked.source
        if isinstance(source, AnchorSetSource):
            try:
                return self._sets.open(source.digest).first(source.count)
            except NotFound as error:
                raise _deleted(source) from error
        return self._datasets.anchors(
            source,
            history=asked.history,
            horizon=asked.horizon,
            frame_digests=frame_digests,
            check=check,
        )

    def _require(self, source: AnySource, stamp: str) -> None:
        if self.stamp(source) != stamp:
            raise _changed(source)

    def _touch(self, source: AnySource) -> int | None:
        """Put off a set's expiry; return the windows that it was drawn from, as far as known."""
        if not isinstance(source, AnchorSetSource):
            return None
        try:
            self._sets.touch(source.digest)
            return self._sets.get(source.digest).info.windows
        except NotFound as error:
            raise _deleted(source) from error

    def _find(self, asked: _Asked, fits: Callable[[_Kept], bool]) -> _Kept | None:
        return next((one for one in self._kept if one.asked == asked and fits(one)), None)

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


def _deleted(source: AnchorSetSource) -> FailedPrecondition:
    return FailedPrecondition(
        f"anchor set {source.digest} was deleted; upload it again and submit the job again",
        reason="ANCHOR_SET_DELETED",
    )
