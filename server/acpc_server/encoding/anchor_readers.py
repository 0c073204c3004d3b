"""Opens the anchors of jobs, from a dataset or from a stored set."""

from __future__ import annotations

import base64
import copy
import threading
from collections import OrderedDict
from collections.abc import Sequence
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

from acpc_server.data import Anchors, DatasetAnchors, DatasetStore
from acpc_server.data.anchor_sets import AnchorStore
from acpc_server.errors import AcpcError, FailedPrecondition, InvalidArgument, NotFound
from acpc_server.models import ModelCard, check_actions
from acpc_server.numerics import Check, go_on

# Readers kept open, most of them under two keys: consecutive jobs of a sweep use the same anchors.
KEPT_READERS = 8


@dataclass(frozen=True)
class AnchorSetSource:
    """Anchors of a stored set, by the digest of their content; the rest follows from it.

    Attributes:
        count: Anchors n.
        window_future_frames: Of the windows they were drawn from; None: unknown, as of an upload.
        sample: How these were drawn, where that is known.
    """

    digest: str
    count: int
    window_future_frames: int | None = field(default=None, compare=False)
    sample: AnchorSample = field(default=AnchorSample.SERVER_DEFAULT, compare=False)


AnySource: TypeAlias = AnchorSource | AnchorSetSource
"""Where the anchors of a job come from."""


_OR_EVERY = ", or one with the states and labels of every future frame"


class _Key(NamedTuple):
    """Key of kept anchors; ``identity`` is a stamp of their data, or their digest."""

    tenant: str
    source: AnySource
    identity: str
    history: int
    horizon: int


class AnchorReaders:
    """Opens anchors for the jobs of a tenant, and checks that they have not changed.

    Made for the tenant without a name; :meth:`of` gives the readers of others.
    """

    def __init__(self, datasets: DatasetStore, sets: AnchorStore) -> None:
        self._tenant = ""
        self._datasets = datasets
        self._sets = sets
        self._kept: OrderedDict[_Key, Anchors] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, tenant: str) -> AnchorReaders:
        """The readers of a tenant, which find its own sets only."""
        other = copy.copy(self)
        other._tenant, other._sets = tenant, self._sets.of(tenant)
        return other

    def named_set(self, digest: str) -> AnchorSetSource:
        """The source that a set's digest names, or another name of it.

        Raises:
            InvalidArgument: No name of a set, or of several; the field is ``digest``.
            NotFound: There is no such set.
        """
        info = self._sets.get(digest).info
        if info.source is None:
            return AnchorSetSource(info.digest, info.anchors)
        source = info.source
        return AnchorSetSource(
            info.digest, info.anchors, source.window_future_frames, source.sample
        )

    def reading(self, source: AnySource) -> Reading:
        """The reading of a request that does not say one: the task file's, or the paper's.

        A set that was drawn from a dataset follows the task it was drawn for, while that is there.

        Raises:
            InvalidArgument, NotFound, PermissionDenied, FailedPrecondition: No such task.
        """
        if isinstance(source, AnchorSetSource):
            drawn = self._sets.get(source.digest).info.source
            with suppress(AcpcError):
                return self._datasets.reading(drawn.task) if drawn else Reading.PAPER
            return Reading.PAPER
        try:
            return self._datasets.reading(source.task)
        except InvalidArgument as error:
            raise error.below("dataset") from error

    def check(
        self, source: AnySource, card: ModelCard, *, history: int, horizon: int, exact: bool = True
    ) -> None:
        """Reject anchors that cannot be used, before a job is queued.

        With ``exact`` also a set that has more frames of history, or more future ones without the
        states and labels of each: then those that it has belong to its own horizon.

        Raises:
            InvalidArgument: They do not fit; names ``anchor_set`` or the field below ``dataset``.
            NotFound, PermissionDenied, FailedPrecondition: They cannot be used.
        """
        if isinstance(source, AnchorSetSource):
            self._check_set(source, card, history, horizon, exact)
            return
        try:
            self._check_dataset(source, card, history, horizon)
        except InvalidArgument as error:
            raise error.below("dataset") from error

    def given_views(
        self, source: AnySource, shifts: Sequence[VisualChange], draws: int, fields: tuple[str, str]
    ) -> dict[str, str]:
        """Digests of the groups of given views among some shifts, by group.

        Args:
            source: The anchors.
            shifts: The shifts of a job.
            draws: Views of each that it takes.
            fields: Path of a shift in the request, with its index as ``{}``, and of the draws.

        Raises:
            InvalidArgument: The anchors have no such group, or fewer views in it.
        """
        found: dict[str, str] = {}
        for index, shift in enumerate(shifts):
            if not isinstance(shift, GivenViews):
                continue
            path = f"{fields[0].format(index)}.{shift.kind}.group"
            found[shift.group] = self._group(source, VIEWS, shift.group, draws, (path, fields[1]))
        return found

    def given_directions(self, source: AnySource, study: SensitivityStudy) -> dict[str, str]:
        """Digest of the group of directions that a study takes, by group; empty for random ones.

        Raises:
            InvalidArgument: The anchors have no such group, or fewer directions in it.
        """
        fields = f"{study.kind}.directions", f"{study.kind}.probes"
        group = study.directions
        return (
            {group: self._group(source, DIRECTIONS, group, study.probes, fields)} if group else {}
        )

    def _group(
        self, source: AnySource, prefix: str, group: str, count: int, fields: tuple[str, str]
    ) -> str:
        """Digest of a group; ``fields`` are those of its name and of how many are taken."""
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
        frames = window_future_frames(source, horizon)
        fit = self._datasets.fit(
            source.dataset, source.task, steps=history + frames, frameskip=source.frameskip
        )
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
                f"of {history} + {frames} frames",
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
        """Changes when the data is replaced or written to; of a set, its digest.

        Raises:
            InvalidArgument, NotFound, PermissionDenied, FailedPrecondition: It cannot be found.
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
        """The anchors, and the identity by which :meth:`reopen` knows them again.

        ``stamp`` is what :meth:`stamp` gave when the job was accepted; ``known`` the identity of
        the first of them, whose frames need not be read again.

        Raises:
            FailedPrecondition: The dataset has changed since, or the set is gone.
        """
        self._touch(source)
        self._require(source, stamp)
        key = _Key(self._tenant, source, stamp, history, horizon)
        frames = base64.b64decode(known["frames"]) if known else b""
        anchors = self._find(key) or self._read(key, frames, check)
        self._require(source, stamp)  # it may have been replaced while it was read
        self._keep(key, anchors)
        self._keep(key._replace(identity=anchors.digest), anchors)
        frames = anchors.frame_digests if isinstance(anchors, DatasetAnchors) else b""
        return anchors, {"digest": anchors.digest, "frames": base64.b64encode(frames).decode()}

    def reopen(
        self, source: AnySource, identity: dict[str, Any], *, history: int, horizon: int
    ) -> Anchors:
        """The anchors that :meth:`open` identified, in this process or another.

        Frames are checked as they are read, the rest now.

        Raises:
            FailedPrecondition: The dataset has changed since, or the set is gone.
        """
        self._touch(source)
        # By its digest, not by the stamp: what is read here may not be what the file holds now.
        key = _Key(self._tenant, source, identity["digest"], history, horizon)
        anchors = self._find(key) or self._read(key, base64.b64decode(identity["frames"]), go_on)
        if anchors.digest != identity["digest"]:
            raise _changed(source)
        self._keep(key, anchors)
        return anchors

    def _read(self, key: _Key, frame_digests: bytes, check: Check) -> Anchors:
        source = key.source
        if isinstance(source, AnchorSetSource):
            try:
                return self._sets.open(source.digest).first(source.count)
            except NotFound as error:
                raise _deleted(source) from error
        return self._datasets.anchors(
            source,
            history=key.history,
            horizon=key.horizon,
            frame_digests=frame_digests,
            check=check,
        )

    def _require(self, source: AnySource, stamp: str) -> None:
        if self.stamp(source) != stamp:
            raise _changed(source)

    def _touch(self, source: AnySource) -> None:
        if isinstance(source, AnchorSetSource):
            try:
                self._sets.touch(source.digest)
            except NotFound as error:
                raise _deleted(source) from error

    def _find(self, key: _Key) -> Anchors | None:
        with self._lock:
            return self._kept.get(key)

    def _keep(self, key: _Key, anchors: Anchors) -> None:
        with self._lock:
            self._kept[key] = anchors
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT_READERS:
                self._kept.popitem(last=False)


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
