"""Uploads that can never work."""

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import wire
from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1.tensor_pb2 import Tensor
from anchor_wire import HEIGHT, HISTORY, STEPS, WIDTH, anchor_arrays, further, header, shard
from declared import INF, INVALID, NAN, Case, Rows, broken
from rules import HUGE, LATE, UNICODE

METHOD = "AnchorService.UploadAnchors"
OVER = "RESOURCE_EXHAUSTED"
GOOD = {name: array[:4] for name, array in anchor_arrays().items()}
SHAPE = [4, STEPS, HEIGHT, WIDTH, 3]
RAW = GOOD["frames"].tobytes()
PACKED, BOMB, BIG_BOMB = (
    zlib.compress(data) for data in (RAW, bytes(len(RAW) + 1), bytes(2**28))
)  # fmt: skip
PLAIN = pb.COMPRESSION_NONE
IMAGE = (HISTORY, HEIGHT, WIDTH, 3)
VIEWS = np.zeros((4, 2, *IMAGE), np.uint8)
EXTENTS = list(VIEWS.shape)
PACKED_VIEWS = zlib.compress(VIEWS.tobytes())
RAYS, FELT = np.ones((4, 2, *IMAGE), np.float32), np.zeros((4, STEPS, 2), np.float32)


def _poked(array: np.ndarray, value: float, at: int = 3) -> np.ndarray:
    poked = array.copy()
    poked.flat[at] = value
    return poked


STILL = RAYS.copy()
STILL[3, 1] = 0


def _sent(shape: list[int], data: bytes = b"", dtype: int = 1) -> Tensor:
    return Tensor(dtype=dtype, shape=shape, data=data)


def _packed(data: bytes, **changed: object) -> dict[str, Any]:
    return {"frames": _sent(SHAPE, data), **changed}


HEADERS: Rows = [
    ("anchors-over", {"anchors": HUGE}, "", OVER),
    ("digest-short", {"expected_digest": "ab"}, "expected_digest"),
    ("digest-path", {"expected_digest": "../" * 21 + "a"}, "expected_digest"),
]
SHARDS: Rows = [
    ("offset", {"offset": 4}, "", LATE),
    ("offset-huge", {"offset": HUGE}, "", LATE),
    ("no-frames", {"frames": None}, "frames.dtype"),
    *(
        (f"frames-{dtype}-{'x'.join(map(str, shape[:9]))}", {"frames": _sent(shape, dtype=dtype)},
         f"frames.{part}")
        for shape, dtype, part in (
            (SHAPE, 5, "dtype"), (SHAPE, 99, "dtype"), ([], 1, "shape"), (SHAPE[1:], 1, "shape"),
            ([1] * 4000, 1, "shape"), ([4, STEPS + 1, HEIGHT, WIDTH, 3], 1, "shape"),
            ([4, STEPS, HEIGHT, WIDTH, 1], 1, "shape"), ([0, *SHAPE[1:]], 1, "shape"),
            ([4, STEPS, HEIGHT, 0, 3], 1, "shape"), ([-4, *SHAPE[1:]], 1, "shape"),
            ([-4, STEPS, -HEIGHT, WIDTH, 3], 1, "shape"), ([1, STEPS, 4097, 1, 3], 1, "shape"),
            ([1, STEPS, 4096, 4096, 3], 1, "shape"), ([2**62, STEPS, 4096, 4096, 3], 1, "shape"),
        )
    ),
    *(
        (label, _packed(data), "frames.data")
        for label, data in (
            ("few", zlib.compress(RAW[:-1])), ("many", zlib.compress(RAW + b"x")), ("bomb", BOMB),
            ("bomb-256-mib", BIG_BOMB), ("cut-off", PACKED[:-5]), ("garbage", b"\xff" * 99),
            ("empty", b""), ("gzip", b"\x1f\x8b" + PACKED), ("trailing", PACKED + b"more"),
            ("twice", PACKED + PACKED), ("zlib-plain", RAW),
        )
    ),
    ("plain-few", _packed(RAW[:-1], frame_compression=PLAIN), "frames.data"),
    ("plain-packed", _packed(PACKED, frame_compression=PLAIN), "frames.data"),
    ("compression-unset", _packed(PACKED, frame_compression=0), "frame_compression"),
    ("compression-unknown", _packed(PACKED, frame_compression=9), "frame_compression"),
    ("no-crc", _packed(PACKED, frame_crc32=0), "frame_crc32"),
    ("crc", _packed(PACKED, frame_crc32=zlib.crc32(RAW)), "frame_crc32"),
    ("labels-bytes", {"labels": _sent([4], b"123", dtype=3)}, "labels.data"),
    *(
        (f"no-{name}", {name: None}, f"{name}.dtype")
        for name in ("action_blocks", "endpoint_states", "labels", "anchor_ids")
    ),
    *(
        (f"{name}-{number}", {name: wire.tensor(change(GOOD[name]))}, f"{name}.{part}".rstrip("."))
        for number, (name, part, change) in enumerate[tuple[str, str, Callable[[Any], Any]]](
            (
                ("action_blocks", "dtype", lambda x: x.astype(np.float64)),
                ("action_blocks", "shape", lambda x: x[:3]),
                ("action_blocks", "shape", lambda x: x[0]),
                ("action_blocks", "", lambda x: x[:, :3]),
                ("action_blocks", "shape", lambda x: x[:, :, :0]),
                ("action_blocks", "", lambda x: _poked(x, NAN)),
                ("action_blocks", "", lambda x: _poked(x, INF)),
                ("endpoint_states", "dtype", lambda x: x.astype(np.float32)),
                ("endpoint_states", "shape", lambda x: x[:0]),
                ("endpoint_states", "", lambda x: _poked(x, -INF)),
                ("labels", "dtype", lambda x: x.astype(np.int32)),
                ("labels", "shape", lambda x: x[:, None]),
                ("anchor_ids", "shape", lambda x: x[:2]),
                ("anchor_ids", "", lambda x: _poked(x, -1)),
                ("trajectory_ids", "dtype", lambda x: x.astype(np.float64)),
                ("trajectory_ids", "", lambda x: _poked(x, -7)),
            )
        )
    ),
    (
        "extras-over-64-mib",
        {"extras": [
            further("views/a", np.zeros((4, 12_000, *IMAGE), np.uint8), packed=True),
            pb.ShardArray(name="views/b", values=_sent([4, 12_000, *IMAGE]), compression=2),
        ]},
        "extras[1].values.shape",
    ),
    ("extra-twice", {"extras": [further("views/night", VIEWS)] * 2}, "extras[1].name"),
    ("extra-many", {"extras": [pb.ShardArray(name="proprio")] * 257}, "extras"),
]  # fmt: skip
# One array beside the others, which is good but for what is changed.
EXTRAS: Rows = [
    *(
        (f"named-{number}", {"name": name}, "name")
        for number, name in enumerate((
            "", "views/../../../x", "frames", "views/" + "x" * 101, "views/" + UNICODE, "views/",
            "views/a b", "views/a\n", "Views/night",
        ))
    ),
    ("grouped-proprio", {"name": "proprio/arm", "values": wire.tensor(FELT)}, "name"),
    *(
        (f"{name}-{number}", {"name": name, "values": wire.tensor(array)}, field)
        for number, (name, array, field) in enumerate((
            ("directions/light", STILL, "values"),
            ("directions/light", _poked(RAYS, -INF, 0), "values"),
            ("directions/light", RAYS.astype(np.uint8), "values.dtype"),
            ("directions/light", RAYS[:, :0], "values.shape"),
            ("views/night", RAYS, "values.dtype"),
            ("proprio", FELT[:, :HISTORY], "values.shape"),
            ("proprio", FELT[:, :, :0], "values.shape"),
            ("proprio", FELT.astype(np.float64), "values.dtype"),
            ("proprio", FELT + np.float32(NAN), "values"),
        ))
    ),
    ("no-values", {"values": Tensor()}, "values"),
    *(
        (f"shape-{'x'.join(map(str, shape[:9]))}", {"values": _sent(shape)}, field)
        for shape, field in (
            (EXTENTS[:-1], "values.shape"), ([1] * 4000, "values"), ([3, *EXTENTS[1:]], "values"),
            ([4, 0, *EXTENTS[2:]], "values.shape"), ([4, -2, *EXTENTS[2:]], "values.shape"),
            ([4, 2**62, *EXTENTS[2:]], "values.shape"), ([4, 2**16, *EXTENTS[2:]], "values.shape"),
            ([4, 2, HISTORY + 1, *EXTENTS[3:]], "values.shape"), (EXTENTS, "values.data"),
        )
    ),
    ("dtype", {"values": _sent(EXTENTS, dtype=5)}, "values.dtype"),
    ("dtype-unknown", {"values": _sent(EXTENTS, dtype=99)}, "values"),
    *(
        (f"data-{number}", {"compression": kind, "values": _sent(EXTENTS, data)}, "values.data")
        for number, (kind, data) in enumerate((
            (1, bytes(9)), (1, PACKED_VIEWS), (2, VIEWS.tobytes()), (2, BIG_BOMB),
            (2, b"\xff" * 99), (2, PACKED_VIEWS[:-3]), (2, PACKED_VIEWS + b"x"),
        ))
    ),
    ("crc", {"crc32": 1}, "crc32"),
    ("crc-of-raw", {"compression": 2, "values": _sent(EXTENTS, PACKED_VIEWS),
                    "crc32": zlib.crc32(VIEWS.tobytes())}, "crc32"),
    ("compression", {"compression": 0}, "compression"),
    ("compression-unknown", {"compression": 9}, "compression"),
]  # fmt: skip
ORDERS: list[tuple[str, list[Any], str, str]] = [
    ("nothing", [], "header", INVALID),
    ("empty-message", [pb.UploadAnchorsRequest()], "header", INVALID),
    ("shard-first", [shard()], "header", INVALID),
    ("header-twice", [header(), header()], "shard", INVALID),
    ("empty-second", [header(), pb.UploadAnchorsRequest()], "shard", INVALID),
    ("short", [header(), shard()], "", LATE),
    ("no-shards", [header()], "", LATE),
    ("too-many", [header(anchors=5), shard(0, 12)], "shard.frames.shape", INVALID),
    (
        "second-wider",
        [header(), shard(), shard(4, 8, endpoint_states=wire.tensor(np.zeros((4, 3))))],
        "shard.endpoint_states.shape",
        INVALID,
    ),
    (
        "second-without-trajectories",
        [header(), shard(), shard(4, 8, trajectory_ids=None)],
        "shard.trajectory_ids",
        INVALID,
    ),
    (
        "wrong-expectation",
        [header(expected_digest="0" * 64, anchors=4), shard()],
        "header.expected_digest",
        INVALID,
    ),
]


def _extra(changes: dict[str, Any]) -> pb.ShardArray:
    values = changes.get("values", wire.tensor(VIEWS))
    good = {"name": "views/night", "compression": PLAIN, "crc32": zlib.crc32(values.data)}
    return pb.ShardArray(**{**good, "values": values, **changes})


def _unlike() -> list[Case]:
    """Shards whose extra arrays do not go together."""
    night, noon = further("views/night", VIEWS), further("views/noon", VIEWS)
    pairs: dict[str, tuple[list[pb.ShardArray], list[pb.ShardArray]]] = {
        "more-views": ([night], [further("views/night", np.repeat(VIEWS, 2, axis=1))]),
        "fewer-views": ([night], [further("views/night", VIEWS[:, :1])]),
        "without-views": ([night], []),
        "with-views": ([], [night]),
        "other-name": ([night], [noon]),
        "another-group": ([night], [night, noon]),
        "proprio-wider": ([further("proprio", FELT)], [further("proprio", FELT[..., :1])]),
    }
    return [
        Case(
            f"second-{label}",
            METHOD,
            [header(), shard(extras=first), shard(4, 8, extras=second)],
            "shard.extras",
        )
        for label, (first, second) in pairs.items()
    ]


def _after_header(label: str, path: str, code: str = INVALID, **changed: Any) -> Case:
    return Case(f"shard-{label}", METHOD, [header(), shard(**changed)], path, code)


BAD_UPLOADS = [
    *_unlike(),
    *(
        Case(label, METHOD, [bad], path, code)
        for label, path, bad, code in broken(header(), {"UploadHeader": HEADERS})
    ),
    *(
        _after_header(label, path and f"shard.{path}", (*code, INVALID)[0], **changed)
        for label, changed, path, *code in SHARDS
    ),
    *(
        _after_header(f"extra-{label}", f"shard.extras[0].{path}", extras=[_extra(changed)])
        for label, changed, path in EXTRAS
    ),
    *(Case(label, METHOD, *rest) for label, *rest in ORDERS),
]  # fmt: skip
