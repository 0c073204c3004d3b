"""Finds the weights files of a folder that are whole, and says which they are."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from acpc.contract import WEIGHTS_SUFFIXES, is_weights_name
from acpc_client import CheckpointRef

from acpc_lab.sweeps import Label

CONFIG, OPTIONS = "config.json", "acpc.json"
# Of files that hold weights, loaded by the server or not.
_OF_RUN = re.compile(r"(?:run|seed|trial|version|fold)[=_-]?\d+", re.IGNORECASE)
_LOOKS = (*WEIGHTS_SUFFIXES, ".pth")
_NO_CONFIG = f"no {CONFIG} beside it; the server loads what acpc-server import makes of it"
_NOT_LOADED = "no server loads such a file; acpc-server import makes a checkpoint of it"
_LINK = "it, or what is beside it, is a symbolic link or no regular file; the server follows none"
_ZIP_END = 22  # bytes of the record that ends a zip file without a comment
_LONGEST_HEADER = 1 << 27
_DIGITS = 18
# What reading the end of a file that has none may raise.
_NO_END = (
    OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, zipfile.BadZipFile,
)  # fmt: skip
Stamp = tuple[int, ...]


@dataclass(frozen=True)
class WeightsFile:
    """A weights file beside a ``config.json``.

    Attributes:
        ref: What the server calls it.
        stamp: Size, times and identity of its files; differs once one was written or replaced.
    """

    ref: CheckpointRef
    path: Path
    stamp: Stamp

    def digest(self) -> str:
        """sha256 of ``config.json``, of ``acpc.json`` where there is one, and of the weights.

        Raises OSError: A file cannot be read.
        """
        digest = hashlib.sha256()
        for file in (*_beside(self.path), self.path):
            with file.open("rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
        return digest.hexdigest()


@dataclass(frozen=True)
class Arrival:
    """A checkpoint that has arrived: one name with one content, the sha256 of its files."""

    ref: CheckpointRef
    digest: str

    @cached_property
    def id(self) -> str:
        """Names it in the journal."""
        text = "\0".join((self.ref.name, self.ref.weights, self.digest))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def __str__(self) -> str:
        return f"{self.ref.name} ({self.ref.weights})"

    @property
    def epoch(self) -> int | None:
        """The last number in the name of the weights file, or else of its folder; None: none.

        Numbers behind ``epoch`` or ``step`` go before those of a metric; those of a run or a seed,
        as in ``run-0``, are none. Longer digits than a step can have are no number.
        """
        for name in (PurePosixPath(self.ref.weights).stem, PurePosixPath(self.ref.name).name):
            text = _OF_RUN.sub("", name)
            numbers = re.findall(r"(?:epoch|step)[=_-]?(\d+)", text) or re.findall(r"\d+", text)
            if numbers:
                return int(numbers[-1]) if len(numbers[-1]) <= _DIGITS else None
        return None

    @property
    def labels(self) -> dict[str, Label]:
        """Its training run and epoch, as a sweep's labels; none where its name has no number.

        The run is the folder above the checkpoint's where the checkpoint's is the epoch's.
        """
        if self.epoch is None:
            return {}
        path = PurePosixPath(self.ref.name)
        numbers = re.findall(r"\d+", path.name)
        in_weights = re.search(r"\d", PurePosixPath(self.ref.weights).stem)
        of_epoch = not in_weights and numbers and int(numbers[-1]) == self.epoch
        run = str(path.parent) if of_epoch and path.parent.name else self.ref.name
        return {"run": run, "epoch": self.epoch}


class Finder:
    """Looks for weights files that are whole below a folder.

    Args:
        root: The folder.
        prefix: What the server calls the folder; empty: it is the server's checkpoint root.
        settle: Seconds for which a file must not change, where its format does not tell its end.
    """

    def __init__(self, root: Path, prefix: str, settle: float) -> None:
        self.root = root.resolve()
        self._prefix = prefix.strip("/")
        self._settle = settle
        self._whole: dict[Path, Stamp] = {}
        self._since: dict[Path, tuple[Stamp, float]] = {}
        self.unsettled = False
        self.torn: dict[Path, bool] = {}
        self.skipped: dict[Path, str] = {}

    def look(self) -> list[WeightsFile]:
        """The whole ones by epoch and name.

        ``unsettled`` says whether others may be whole soon, ``torn`` which have no end, and whether
        they have not changed for a while, ``skipped`` what looks like weights and cannot be scored,
        and why.
        Raises OSError: The folder cannot be read.
        """
        self.unsettled = False
        self.torn.clear()
        self.skipped.clear()
        return sorted(filter(self._is_whole, self._below()), key=_by_epoch)

    def _below(self) -> Iterator[WeightsFile]:
        os.scandir(self.root).close()  # of the root an error is raised, of folders in it it is not

        def unread(error: OSError) -> None:
            self.skipped[Path(error.filename)] = f"cannot be read: {error.strerror}"

        for place, folders, files in os.walk(self.root, onerror=unread):
            folders[:] = sorted(filter(_is_looked_at, folders))
            links = (path for folder in folders if (path := Path(place, folder)).is_symlink())
            self.skipped |= dict.fromkeys(links, _LINK)
            inner = Path(place).relative_to(self.root).as_posix()
            name = "/".join(filter(None, (self._prefix, "" if inner == "." else inner)))
            for weights in sorted(filter(_is_looked_at, files)):
                path = Path(place, weights)
                if not weights.endswith(_LOOKS):
                    continue
                if CONFIG not in files:
                    self.skipped[path] = _NO_CONFIG
                elif not is_weights_name(weights):
                    self.skipped[path] = _NOT_LOADED
                elif (stamp := stamp_of(path)) is not None:
                    yield WeightsFile(CheckpointRef(name, weights), path, stamp)
                elif os.path.lexists(path):
                    self.skipped[path] = _LINK

    def find(self, ref: CheckpointRef) -> WeightsFile | None:
        """The weights file that the server calls so; None: there is none."""
        inside = ref.name.removeprefix(self._prefix).strip("/")
        path = self.root / inside / ref.weights
        stamp = stamp_of(path)
        return None if stamp is None else WeightsFile(ref, path, stamp)

    def _is_whole(self, found: WeightsFile) -> bool:
        path, stamp = found.path, found.stamp
        if self._whole.get(path) == stamp:
            return True
        before, since = self._since.get(path, (None, 0.0))
        if before != stamp:
            self._since[path] = stamp, time.monotonic()
        settled = before == stamp and time.monotonic() - since >= self._settle
        ended = all(map(_is_json, _beside(path))) and _has_end(path)
        if ended or (ended is None and settled):
            self._whole[path] = stamp
            self._since.pop(path, None)
            return True
        if ended is None:
            self.unsettled = True
        else:
            self.torn[path] = settled
        return False


def _by_epoch(found: WeightsFile) -> tuple[object, ...]:
    epoch = Arrival(found.ref, "").epoch
    return epoch is None, epoch or 0, found.ref.name, found.ref.weights


def _beside(weights: Path) -> list[Path]:
    """The configuration of a weights file, and the options, which not every checkpoint has."""
    config, options = weights.with_name(CONFIG), weights.with_name(OPTIONS)
    return [config, options] if os.path.lexists(options) else [config]


def stamp_of(weights: Path) -> Stamp | None:
    """The stamp of a weights file as it is now; None: one of its files is gone, or not regular."""
    stamp: list[int] = []
    for file in (weights, *_beside(weights)):
        try:
            status = file.lstat()
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        # Programs that copy files set the time of the content, but not that of the inode.
        stamp += [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    return tuple(stamp)


def _is_looked_at(name: str) -> bool:
    """Whether a name is neither hidden nor of bytes that are no UTF-8, which cannot be sent."""
    return not name.startswith(".") and name == name.encode(errors="ignore").decode()


def _is_json(file: Path) -> bool:
    try:
        json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return True


def _has_end(file: Path) -> bool | None:
    """Whether a file is whole; None: its format does not mark its end.

    What ``torch.save`` writes is a zip file, whose list of contents comes last. A safetensors file
    says in its first bytes how long it is, but some writers take all the room before they fill it.
    """
    try:
        with file.open("rb") as opened:
            begin = opened.read(8)
            if file.suffix == ".safetensors":
                size = int.from_bytes(begin, "little")
                header = json.loads(opened.read(size)) if size <= _LONGEST_HEADER else {}
                ends = [item["data_offsets"][1] for item in header.values() if "dtype" in item]
                length = 8 + size + max(ends, default=0)
                return None if length == os.fstat(opened.fileno()).st_size else False
            if not begin.startswith(b"PK\x03\x04"):
                return None if begin else False
            opened.seek(-_ZIP_END, os.SEEK_END)
            last = opened.read()
            if not (last.startswith(b"PK\x05\x06") and last.endswith(b"\0\0")):
                return False
            with zipfile.ZipFile(opened) as archive:
                return bool(archive.namelist())
    except _NO_END:
        return False
