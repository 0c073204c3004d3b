"""Reads hostile and damaged object files, and prints what came of it as one line of JSON.

    python tests/hostile/object_series.py hostile
    python tests/hostile/object_series.py mutated BASE_FILE --count 100000 --seed 1

A fault is anything but a rejection or a file that reads. Peaks are resident memory in MiB beyond
what the process had before the first file, of reading alone and of planning.
"""

import argparse
import io
import json
import os
import random
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from acpc.contract import AcpcError
from acpc_server.importing import Run
from acpc_server.importing.reading import read_run

# Events of the interpreter that a reader has no cause for.
EXECUTION = (
    "exec", "os.system", "os.exec", "pickle.find_class",
    "compile", "import", "ctypes.dlopen", "socket.connect", "os.mkdir", "os.remove",
)  # fmt: skip
INSTRUCTIONS = [bytes([code]) for code in range(256)]
WORDS = [
    b"cposix\nsystem\n", b"cbuiltins\neval\n", b"h\0", b")R", b"}b", b"\x85R", b"(", b"t", b"Q",
    b"J\xff\xff\xff\xff", b"M\xff\xff", b"N", b"0", b"\x81", b"r\0\0\0\0", b"X\4\0\0\0heads",
]  # fmt: skip


def members(data: bytes) -> list[tuple[str, bytes]]:
    """The members of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def plain() -> bytes:
    """An archive that holds None."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02N.")
    return written.getvalue()


def mutated(base: bytes, held: list[tuple[str, bytes]], rng: random.Random) -> bytes:
    """The file with damage in its pickle, in the archive around it, or in any byte."""
    place = rng.random()
    if place < 0.75:
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            for name, data in held:
                archive.writestr(name, _damaged(data, rng) if name.endswith("data.pkl") else data)
        return written.getvalue()
    data = bytearray(base)
    for _ in range(rng.randint(1, 8)):
        where = (
            -rng.randrange(1, min(len(data), 3000)) if place < 0.95 else rng.randrange(len(data))
        )
        data[where] = rng.randrange(256)
    return bytes(data[: len(data) - rng.choice((0, 0, 0, rng.randrange(len(data))))])


def _damaged(pickle: bytes, rng: random.Random) -> bytes:
    data = bytearray(pickle)
    for _ in range(rng.randint(1, 4)):
        where, kind = rng.randrange(2, len(data)), rng.randrange(5)
        piece = rng.choice(WORDS if rng.random() < 0.5 else INSTRUCTIONS)
        if kind == 0:
            data[where] = rng.randrange(256)
        elif kind == 1:
            data[where:where] = piece
        elif kind == 2:
            del data[where : where + rng.randint(1, 12)]
        elif kind == 3:
            data[where : where + len(piece)] = piece
        else:
            other = rng.randrange(2, len(data))
            data[where:where] = data[other : other + rng.randint(1, 200)]
    return bytes(data)


def resident() -> float:
    """The largest resident memory of this process until now, MiB; not that of its parent."""
    told = Path("/proc/self/status").read_text()
    return int(told.partition("VmHWM:")[2].split()[0]) / 1024


class Series:
    """One pass over files: outcomes, faults, executed events, slowest file and memory."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self.executed: list[str] = []
        self.slowest, self.watching, self.last = 0.0, False, ""
        self.messages: dict[str, str] = {}  # of the first files
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _: object) -> None:
        if self.watching and event.startswith(EXECUTION):
            self.executed.append(event)

    def take(self, name: str, read: Callable[[], object]) -> bool:
        """Whether a file reads; a rejection is none, and anything else is a fault."""
        self.watching, begun = True, time.perf_counter()
        try:
            read()
            outcome = "read"
        except AcpcError as error:
            outcome = "rejected"
            self.last = error.message
            if len(self.messages) < 100:
                self.messages.setdefault(name, error.message[:200])
            if not 10 < len(error.message) < 1500:
                self.faults.append(f"{name}: message of {len(error.message)} letters")
        except BaseException as error:  # noqa: BLE001 - that is what is looked for
            outcome = "fault"
            self.faults.append(f"{name}: {type(error).__name__}: {error}"[:300])
        self.watching = False
        self.slowest = max(self.slowest, time.perf_counter() - begun)
        self.outcomes[outcome] += 1
        return outcome == "read"


def read_all(path: Path, then: Callable[[Run, list[object]], object] | None = None) -> None:
    """Look through one file, and hand it on."""
    run = Run(path, (path,), None)
    files = read_run(run)
    if then is not None:
        then(run, list(files))


def _files(asked: argparse.Namespace) -> Iterator[tuple[str, bytes]]:
    if asked.what == "hostile":
        from hostile_objects import HOSTILE_OBJECTS

        yield from HOSTILE_OBJECTS.items()
        return
    base = Path(asked.base).read_bytes()
    held = members(base)
    for index in range(asked.count):
        yield str(index), mutated(base, held, random.Random(f"{asked.seed} {index}"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("hostile", "mutated"))
    parser.add_argument("base", nargs="?")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="what each file is answered")
    asked = parser.parse_args()
    memory = os.memfd_create("object")
    path = Path(f"/proc/self/fd/{memory}")
    series, read, largest = Series(), [], 0
    os.pwrite(memory, plain(), 0)
    with suppress(AcpcError):  # imports what a reader needs
        read_all(path)
    before = resident()
    for name, data in _files(asked):
        os.ftruncate(memory, 0)
        os.pwrite(memory, data, 0)
        largest = max(largest, len(data))
        if series.take(name, lambda: read_all(path)):
            read.append((name, data))
        if asked.show:
            print(f"{name}: {series.last}", file=sys.stderr)
    told = {"peak": resident() - before, "start": before, "largest": largest / 2**20,
            "slowest": series.slowest}  # fmt: skip
    from acpc_server.importing.writing import plan_import

    numbers = {"frameskip": 5, "action_dim": None, "family": None, "backbone": None}
    for name, data in read:
        os.ftruncate(memory, 0)
        os.pwrite(memory, data, 0)
        series.take(
            name, lambda: read_all(path, lambda run, files: plan_import(run, files, numbers))
        )
    told |= {
        "outcomes": series.outcomes,
        "faults": series.faults[:20],
        "executed": series.executed[:9],
    }
    told["messages"] = series.messages
    told["read"] = [name for name, _ in read][:9]
    told["witness"] = Path("EXECUTED").exists()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
