"""Object files made by hand to mislead, exhaust or run code in whoever reads them.

Each is the bytes of a file; ``WITNESS`` comes to be in the working folder if one is executed.
"""

# ruff: noqa: E501
import io
import struct
import zipfile
from collections.abc import Callable

WITNESS = "EXECUTED"
SYSTEM = b"cposix\nsystem\n"
MODULE = b"cjepa\nJEPA\n)\x81"
ORDERED = b"ccollections\nOrderedDict\n)R"
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
SHELL = b"X" + struct.pack("<I", 14) + b"touch EXECUTED"


def packed(
    body: bytes, storages: dict[str, bytes] | None = None, *, compression: int = 0,
    more: tuple[tuple[str, bytes], ...] = (),
) -> bytes:  # fmt: skip
    """A torch archive around a pickle's instructions, without PROTO and STOP."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as archive:
        archive.writestr("a/data.pkl", b"\x80\x02" + body + b".")
        for key, data in (storages or {}).items():
            archive.writestr(f"a/data/{key}", data)
        for name, data in more:
            archive.writestr(name, data)
    return written.getvalue()


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def counts(*values: int) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def tensor(
    shape: bytes = counts(2, 2), strides: bytes = counts(2, 1), *, offset: int = 0, held: int = 4,
    key: str = "0",
) -> bytes:  # fmt: skip
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu")
    storage += number(held) + b"tQ"
    return REBUILD + b"(" + storage + number(offset) + shape + strides + b"\x89" + ORDERED + b"tR"


def state(**values: bytes) -> bytes:
    pairs = b"".join(text(f"encoder.{key}") + value for key, value in values.items())
    return b"}(" + pairs + b"u"


def module(children: bytes, attributes: bytes = b"") -> bytes:
    inside = text("_modules") + b"}(" + children + b"u" + attributes
    return MODULE + b"}(" + inside + b"ub"


def chain(depth: int) -> bytes:
    body = b"".join([MODULE + b"}" + text("_modules") + b"}" + text("m")] * depth)
    return body + module(b"") + b"ssb" * depth


def shared(levels: int) -> bytes:
    """Each level holds the level below twice: 2 ** levels modules on the way."""
    body = module(b"") + b"q\0"
    for level in range(levels):
        below = b"h" + bytes([level])
        body += b"0" + module(text("a") + below + text("b") + below) + b"q" + bytes([level + 1])
    last = b"h" + bytes([levels])
    return (
        body
        + b"0"
        + module(b"".join(text(x) + last for x in ("encoder", "predictor", "action_encoder")))
    )


def edited(data: bytes, change: Callable[[bytearray], None]) -> bytes:
    changed = bytearray(data)
    change(changed)
    return bytes(changed)


def _directory_size(data: bytearray) -> None:
    data[-10:-6] = struct.pack("<I", 1 << 30)


def _overlap(data: bytearray) -> None:
    """The second member of the directory lies where the first does."""
    first = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", first + 4)
    data[second + 42 : second + 46] = data[first + 42 : first + 46]


def _entries(count: int) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for index in range(count):
            archive.writestr(f"a/{index}", b"")
    return written.getvalue()


FOUR = {"0": bytes(16)}
MILLION = {"0": bytes(1 << 20)}
HOSTILE_OBJECTS: dict[str, bytes] = {
    "system": packed(SYSTEM + SHELL + b"\x85R"),
    "system-in-module": packed(module(text("x") + SYSTEM + SHELL + b"\x85R")),
    "system-as-state": packed(MODULE + SYSTEM + SHELL + b"\x85Rb"),
    "eval": packed(b"cbuiltins\neval\n" + text("open('EXECUTED','w')") + b"\x85R"),
    "getattr": packed(b"cbuiltins\ngetattr\n" + SYSTEM + text("__call__") + b"\x86R" + SHELL + b"\x85R"),
    "inst": packed(b"(" + SHELL + b"iposix\nsystem\n"),
    "obj": packed(b"(" + SYSTEM + SHELL + b"o"),
    "ext": packed(b"\x82\x01"),
    "stack-global": packed(text("posix") + text("system") + b"\x93" + SHELL + b"\x85R"),
    "newobj-ex": packed(SYSTEM + SHELL + b"\x85}\x92"),
    "string-opcode": packed(b"S'" + b"a" * 9 + b"'\n"),
    "bytearray": packed(b"\x96" + struct.pack("<Q", 1 << 40)),
    "bytearray-call": packed(b"c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R"),
    "long4": packed(b"\x8b" + struct.pack("<i", 1 << 30)),
    "long1": packed(b"\x8a\xff" + b"\xff" * 255),
    "text-of-gigabytes": packed(b"X\xff\xff\xff\xff" + b"a"),
    "stop-early": packed(b""),
    "marks": packed(b"(" * 1_000_000),
    "pops": packed(b"0" * 10),
    "deep-tuples": packed(b")" + b"\x85" * 390_000),
    "deep-tuple-key": packed(b"})" + b"\x85" * 300_000 + b"Ns"),
    "deep-modules": packed(chain(5_000)),
    "shared-modules": packed(shared(60)),
    "cycle": packed(MODULE + b"q\0}(" + text("_modules") + b"}(" + b"".join(
        text(x) + b"h\0" for x in ("encoder", "predictor", "action_encoder")) + b"uub"),
    "memo-index": packed(b"Nr\xff\xff\xff\xff"),
    "memo-missing": packed(b"j\xff\xff\xff\x7f"),
    "many-memos": packed(b"N" + b"".join(b"r" + struct.pack("<I", i) for i in range(300_000))),
    "equal-hashes": packed(b"}(" + b"".join(
        b"\x8a\x08" + struct.pack("<q", k * ((1 << 61) - 1)) + b"N" for k in (-3, -2, -1, 1, 2, 3)) * 30_000 + b"u"),
    "tuple-keys": packed(b"}(" + b"".join(number(i) + b"\x85N" for i in range(90_000)) + b"u"),
    "build-twice": packed(module(b"") + b"}b"),
    "long-names": packed(b"".join(
        [MODULE + b"}" + text("_modules") + b"}" + text("m" * 40_000)] * 60) + module(b"") + b"ssb" * 60),
    "not-persistent": packed(module(b"".join(text(x) + module(b"") for x in (
        "encoder", "predictor", "action_encoder")), text("_non_persistent_buffers_set") +
        b"c__builtin__\nset\n](" + text("n") * 90_000 + b"e\x85R")),
    "expanded": packed(state(x=tensor(counts(1 << 30, 1 << 30), counts(0, 0))), FOUR),
    "sharing": packed(state(**{f"t{i}": tensor(counts(1 << 18), counts(1), held=1 << 18)
                               for i in range(2_000)}), MILLION),
    "named-often": packed(tensor(counts(1 << 18), counts(1), held=1 << 18) + b"q\x000}(" + b"".join(
        text(f"encoder.{i}") + b"h\0" for i in range(2_000)) + b"u", MILLION),
    "negative-size": packed(state(x=tensor(counts(-1, 2))), FOUR),
    "negative-stride": packed(state(x=tensor(strides=counts(-1, 1))), FOUR),
    "far-offset": packed(state(x=tensor(offset=1)), FOUR),
    "many-axes": packed(b"}" + b"(" + number(1) * 70_000 + b"tq\0" + b"(" + (text("x") + tensor(b"h\0", b"h\0")) * 1 + b"u", FOUR),
    "storage-lies": packed(state(x=tensor(held=1 << 20)), FOUR),
    "storage-absent": packed(state(x=tensor(key="9")), FOUR),
    "sizes-are-text": packed(state(x=tensor(b"(" + text("2") + text("2") + b"t")), FOUR),
    "deflated": packed(state(x=tensor()), {"0": bytes(64 << 20)}, compression=zipfile.ZIP_DEFLATED),
    "two-pickles": packed(b"}", more=(("b/data.pkl", b"\x80\x02N."),)),
    "overlapping": edited(packed(state(x=tensor()), FOUR), _overlap),
    "huge-directory": edited(packed(b"N"), _directory_size),
    "many-entries": _entries(60_000),
    "no-pickle": _entries(3),
    "large-pickle": packed(b"N0" * (10 << 20)),
    "torchscript": packed(b"N", more=(("a/constants.pkl", b"N."),)),
    "big-endian": packed(b"N", more=(("a/byteorder", b"big"),)),
    "truncated": packed(state(x=tensor()), FOUR)[:-30],
    "bare-pickle": b"\x80\x02" + SYSTEM + SHELL + b"\x85R.",
    "empty": b"",
}  # fmt: skip
