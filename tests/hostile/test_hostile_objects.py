"""Object files that mislead or are damaged: data all the same, within memory, never run."""

import io
import random
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from acpc.contract import AcpcError
from acpc_server.importing import Run
from acpc_server.importing.reading import read_run
from acpc_server.importing.writing import plan_import
from hostile_objects import HOSTILE_OBJECTS, WITNESS, packed

BASE = Path(__file__).parents[1] / "server/importing/files/paper-run/lewm_epoch_2_object.ckpt"
NUMBERS = {"frameskip": 5, "action_dim": None, "family": None, "backbone": None}
# Files that several guards would reject: which of them it is.
WORDS = {
    "two-pickles": "two members are named 'data.pkl'", "deflated": "compressed or encrypted",
    "overlapping": "members that share bytes", "torchscript": "a TorchScript program",
    "big-endian": "big-endian order", "large-pickle": "a pickle of",
    "memo-index": "asked for more than 1024 MiB or 10 s",
    "deep-tuple-key": "ended the process that described it",
    "sharing": "bytes of tensors come from", "named-often": "bytes of tensors come from",
    "storage-lies": "is not as long as its tensors say",
    "shared-modules": "more than 100000 modules",
    "not-persistent": "encoder is a 'jepa.JEPA', not a ViTModel", "far-offset": "past the end",
}  # fmt: skip
INSTRUCTIONS = [bytes([code]) for code in range(256)]
PIECES = [
    b"cposix\nsystem\n", b"cbuiltins\neval\n", b"h\0", b")R", b"}b", b"\x85R", b"(", b"t", b"Q",
    b"J\xff\xff\xff\xff", b"M\xff\xff", b"N", b"0", b"\x81", b"r\0\0\0\0", b"X\4\0\0\0heads",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rejection(path: Path, data: bytes) -> str:
    """Why a file is not imported; empty for one that may be. Anything else is raised."""
    path.write_bytes(data)
    run = Run(path, (path,), None)
    try:
        plan_import(run, read_run(run), NUMBERS)
    except AcpcError as error:
        assert 10 < len(error.message) < 1500
        return error.message
    return ""


def most_mib() -> float:
    """The largest resident memory of this process since it was last put back."""
    told = Path("/proc/self/status").read_text()
    return int(told.partition("VmHWM:")[2].split()[0]) / 1024


def test_hand_made_files_run_nothing(folder: Path) -> None:
    rejection(folder / "first.ckpt", packed(b"N"))  # imports what a reader needs
    Path("/proc/self/clear_refs").write_text("5")
    before = most_mib()
    told = {
        name: rejection(folder / "hostile.ckpt", data) for name, data in HOSTILE_OBJECTS.items()
    }
    assert not (folder / WITNESS).exists()
    assert [name for name, message in told.items() if not message] == []
    assert {name: told[name] for name, words in WORDS.items() if words not in told[name]} == {}
    assert most_mib() - before < 200 + 3 * max(map(len, HOSTILE_OBJECTS.values())) / 2**20


def mutated(base: bytes, rng: random.Random) -> bytes:
    place = rng.random()
    if place < 0.75:
        written = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(base)) as held, zipfile.ZipFile(written, "w") as archive:
            for name in held.namelist():
                data = held.read(name)
                archive.writestr(name, damaged(data, rng) if name.endswith("data.pkl") else data)
        return written.getvalue()
    data = bytearray(base)
    for _ in range(rng.randint(1, 8)):
        near = -rng.randrange(1, min(len(data), 3000))
        data[near if place < 0.95 else rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data[: len(data) - rng.choice((0, 0, 0, rng.randrange(len(data))))])


def damaged(pickle: bytes, rng: random.Random) -> bytes:
    data = bytearray(pickle)
    for _ in range(rng.randint(1, 4)):
        where, other = (rng.randrange(2, len(data)) for _ in range(2))
        piece = rng.choice(PIECES if rng.random() < 0.5 else INSTRUCTIONS)
        data[where : where + rng.choice((0, 1, len(piece), 12))] = rng.choice(
            (b"", rng.randbytes(1), piece, data[other : other + rng.randint(1, 200)])
        )
    return bytes(data)


@pytest.mark.parametrize(
    "count", [150, pytest.param(20_000, marks=[pytest.mark.nightly, pytest.mark.timeout(7200)])]
)
def test_damaged_files_are_read_or_rejected(folder: Path, count: int) -> None:
    base, outcomes = BASE.read_bytes(), Counter[bool]()
    for index in range(count):
        damage = mutated(base, random.Random(index))
        outcomes[not rejection(folder / "damaged.ckpt", damage)] += 1
    assert not (folder / WITNESS).exists()
    assert min(outcomes[True], outcomes[False]) > count / 20
