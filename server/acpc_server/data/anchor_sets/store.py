"""Stores anchor sets in a folder that servers may share."""

from __future__ import annotations

import hashlib
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from acpc.contract import AnchorSet, from_json, moment, shared, to_json

from acpc_server.data.anchor_sets.files import discard, folder_bytes, held, volume_space, write_text
from acpc_server.data.anchor_sets.info import (
    DIGEST,
    AnchorLimits,
    StoredSet,
    UploadHeader,
    read_stored,
)
from acpc_server.data.anchor_sets.shards import StoredAnchors, arrived
from acpc_server.data.anchor_sets.uploads import DATA, DONE, AnchorUpload, finished_digest
from acpc_server.errors import (
    Aborted,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    only_one,
)
from acpc_server.observe import Metrics

HEADER = "header.json"
# Unfinished uploads on disk, so that headers alone cannot fill the folder.
MAX_STAGED = 1024
LATEST = "latest"
_BEGINNING = re.compile(r"[0-9a-f]{8,63}")


class AnchorStore:
    """Immutable sets of anchors, named by the digest of their content.

    FailedPrecondition: the folder cannot be made.
    """

    def __init__(self, root: Path, limits: AnchorLimits, metrics: Metrics) -> None:
        self.limits = limits
        self._metrics = metrics
        self._lock = threading.Lock()
        self._bytes = 0  # of everything, roughly between counts
        self._sets, self._uploads, self._trash = root / "sets", root / "uploads", root / "trash"
        try:
            for folder in (self._sets, self._uploads, self._trash):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FailedPrecondition(
                f"cannot make the folder of anchor sets {root} ({error.strerror}); choose another "
                "--anchor-dir"
            ) from error
        self._measure()

    def open(self, name: str) -> StoredAnchors:
        """Open the anchors of a set, now in use; raises as ``get``, and when it is damaged."""
        info = self.get(name, use=True).info
        return StoredAnchors(self._sets / info.digest, info)

    def find(self, name: str) -> str:
        """Return the digest of the set that a name means: ``latest``, a request id, or its digest.

        The request id is that of the upload which made it; of the digest, a beginning of at least
        8 digits will do. InvalidArgument: no possible name, or of several sets; NotFound: of none.
        """
        if DIGEST.fullmatch(name):
            return name
        of_upload = finished_digest(self._folder(name))
        if of_upload and (self._sets / of_upload).exists():
            return of_upload
        if name == LATEST:
            begun = [stored.info.digest for stored in self.list()[:1]]
        else:
            if not _BEGINNING.fullmatch(name):
                raise InvalidArgument(
                    "digest",
                    f"is {name[:80]!r}; give a digest (8 to 64 hexadecimal digits, lower case), "
                    "the request id of an upload, or latest",
                )
            begun = sorted(one.name for one in self._sets.glob("*") if one.name.startswith(name))
        found = only_one(name, begun, "anchor sets", "digest")
        if found is None:
            raise _no_set(name)
        return found

    def get(self, name: str, *, use: bool = False) -> StoredSet:
        """Return what a set is; raises as ``find``, and NotFound for no such set.

        To ``use`` it postpones its expiry.
        """
        digest = self.find(name)
        stored = read_stored(self._sets / digest, use=use)
        if stored is None:
            raise _no_set(digest)
        return stored

    def list(self) -> list[StoredSet]:
        """List every set that can be read, newest first."""
        sets: list[StoredSet] = []
        for folder in self._sets.glob("*"):
            with suppress(FailedPrecondition):  # get and open say what is wrong with it
                stored = read_stored(folder)
                sets += [stored] if stored else []
        return sorted(sets, key=lambda stored: (-stored.info.create_time, stored.info.digest))

    def expire_time(self, stored: StoredSet) -> float | None:
        """Return when a set expires unless it is used, in seconds since 1970; None: never."""
        keep = self.limits.keep_seconds
        return stored.used_time + keep if keep else None

    def described(self, stored: StoredSet) -> AnchorSet:
        """Return the answer that describes a set."""
        expires = self.expire_time(stored)
        times = {
            "create_time": moment(stored.info.create_time),
            "expire_time": None if expires is None else moment(expires),
        }
        return AnchorSet(**shared(stored.info, AnchorSet) | times)

    def delete(
        self,
        name: str,
        in_use: Callable[[str], bool],
        allow: Callable[[str], None] = lambda owner: None,
    ) -> None:
        """Remove a set; raises as ``get``, and FailedPrecondition while a job uses it.

        ``allow`` may raise for who uploaded it first; '' where that is not known.
        """
        digest, owner = self.find(name), ""
        with suppress(FailedPrecondition):  # one that is damaged can be deleted
            owner = self.get(digest).info.owner
        allow(owner)
        if in_use(digest):
            raise FailedPrecondition(
                f"anchor set {digest} is used by a job that has not ended; wait for it, or cancel "
                "it first",
                reason="ANCHOR_SET_IN_USE",
            )
        discard(self._sets / digest, self._trash)
        self._measure()

    @contextmanager
    def upload(self, header: UploadHeader) -> Iterator[AnchorUpload]:
        """Begin an upload, or continue the one of the same request id.

        One without a request id leaves nothing behind but its set. Aborted while another call,
        maybe at another server, works on it; AlreadyExists for another header under this request
        id; ResourceExhausted over a quota.
        """
        if header.anchors > self.limits.set_anchors:
            raise ResourceExhausted(
                f"{header.anchors} anchors are over the server's {self.limits.set_anchors} for one "
                "set; split them into several sets",
                reason="ANCHOR_SET_TOO_LARGE",
            )
        named = header.request_id
        folder = self._folder(named or str(uuid.uuid4()))
        try:
            self._metrics.anchor_uploads.inc()
            if not folder.exists() and len(self._staged()) >= MAX_STAGED:
                raise ResourceExhausted(
                    f"{MAX_STAGED} uploads are unfinished; finish some, or wait until they lapse",
                    reason="TOO_MANY_UPLOADS",
                )
            with volume_space(), held(folder, f"upload {named!r} is in use by another call"):
                if not (path := folder / HEADER).exists():
                    write_text(path, to_json(header))
                elif from_json(UploadHeader, path.read_bytes()) != header:
                    raise AlreadyExists(
                        f"request_id {named!r} belongs to an upload with another header; use a new "
                        "request_id"
                    )
                upload = AnchorUpload(folder, self._sets, self._trash, header, self._reserve)
                try:
                    yield upload
                finally:
                    origin = "dataset" if header.source else "upload"
                    self._metrics.anchors_stored.labels(origin).inc(upload.appended)
                    if upload.finished:
                        self._measure()
        finally:
            self._metrics.anchor_uploads.dec()
            if not named:
                discard(folder, self._trash)

    def progress(self, request_id: str) -> tuple[int, StoredSet | None]:
        """Return an upload's first missing anchor, and the set once complete; or raise NotFound."""
        folder = self._folder(request_id)
        if not (folder / HEADER).exists():
            raise NotFound(f"no upload has request_id {request_id!r}; it may have lapsed")
        digest = finished_digest(folder)
        stored = read_stored(self._sets / digest) if digest else None
        if stored is not None:
            return stored.info.anchors, stored
        try:
            return arrived(folder / DATA)[0], None
        except FailedPrecondition:
            if finished_digest(folder) != digest:  # it became a set at this moment
                return self.progress(request_id)
            return 0, None  # damaged: the upload will start again

    def tidy(self, in_use: Callable[[str], bool]) -> None:
        """Remove expired sets, abandoned uploads and leftovers.

        A set is kept while ``in_use`` says that a job names it.
        """
        now = time.time()
        for stored in self.list():
            expires = self.expire_time(stored)
            if expires is not None and expires < now and not in_use(stored.info.digest):
                discard(self._sets / stored.info.digest, self._trash)
        for folder in self._uploads.glob("*"):
            self._lapse(folder, now)
        for leftover in self._trash.glob("*"):
            discard(leftover, self._trash)
        self._measure()

    def _lapse(self, folder: Path, now: float) -> None:
        try:
            digest = finished_digest(folder)
            if digest and (self._sets / digest).exists():
                return  # the request id still names its set
            moved = max(path.stat().st_mtime for path in (folder, folder / DATA) if path.exists())
            if moved + self.limits.upload_seconds >= now:
                return
            with held(folder, "at work"):
                discard(folder, self._trash)
        except (Aborted, FileNotFoundError, ValueError):
            return  # at work, or gone in between

    def _folder(self, request_id: str) -> Path:
        return self._uploads / hashlib.sha256(request_id.encode()).hexdigest()

    def _staged(self) -> Sequence[Path]:
        """Folders of unfinished uploads."""
        return [folder for folder in self._uploads.glob("*") if not (folder / DONE).exists()]

    def _measure(self) -> None:
        """Count the bytes of all sets and unfinished uploads, which reads the whole store."""
        sets = self.list()
        staged = sum(map(folder_bytes, self._staged()))
        with self._lock:
            self._bytes = sum(stored.info.size_bytes for stored in sets) + staged
        self._metrics.anchor_sets.set(len(sets))
        self._metrics.anchor_bytes.set(self._bytes)

    def _reserve(self, more: int) -> None:
        """Take bytes, or raise ResourceExhausted; the next count corrects."""
        if self._bytes + more > self.limits.store_bytes:
            self._measure()
        with self._lock:
            if self._bytes + more > self.limits.store_bytes:
                raise ResourceExhausted(
                    f"the anchor sets of this server are at their limit of "
                    f"{self.limits.store_bytes} bytes; delete sets that are not needed",
                    reason="ANCHOR_STORE_FULL",
                )
            self._bytes += more
        self._metrics.anchor_bytes.set(self._bytes)


def _no_set(digest: str) -> NotFound:
    if digest == LATEST:
        return NotFound("there is no anchor set yet; upload one")
    return NotFound(
        f"no anchor set has digest {digest}; it may have expired: acpc list anchor-sets shows all"
    )
