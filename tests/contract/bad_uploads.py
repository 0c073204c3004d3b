"""Uploads and calls about anchor sets that can never work; shape of ``bad_jobs``."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import wire
from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1.tensor_pb2 import Tensor
from anchor_wire import HEIGHT, HISTORY, HORIZON, STEPS, WIDTH, anchor_arrays, header, shard
from bad_jobs import ABSENT, MethodCase
from bad_pairs import INVALID, NAN, UNICODE, Case
from given_wire import sealed

LATE = "FAILED_PRECONDITION"
OVER = "RESOURCE_EXHAUSTED"
HUGE = 2**32 - 1


def _header(id: str, field: str, code: str = INVALID, **changed: object) -> Case:
    return Case(f"header-{id}", [header(**changed)], field and f"header.{field}", code)


def _shard(id: str, field: str, code: str = INVALID, **changed: Any) -> Case:  # noqa: ANN401
    return Case(f"shard-{id}", [header(), shard(**changed)], field and f"shard.{field}", code)


def _frames(id: str, shape: list[int], field: str, data: bytes = b"", dtype: int = 1) -> Case:
    return _shard(id, f"frames.{field}", frames=Tensor(dtype=dtype, shape=shape, data=data))


def _small(name: str, array: np.ndarray, field: str = "") -> Case:
    kind = f"{array.dtype.name}-{'x'.join(map(str, array.shape))}"
    return _shard(
        f"{name}-{field}-{kind}", f"{name}.{field}".rstrip("."), **{name: wire.tensor(array)}
    )


GOOD = {name: array[:4] for name, array in anchor_arrays().items()}
SHAPE = [4, STEPS, HEIGHT, WIDTH, 3]
RAW = GOOD["frames"].tobytes()
PACKED = zlib.compress(RAW)
PLAIN = pb.COMPRESSION_NONE
BOMB = zlib.compress(bytes(len(RAW) + 1))
BIG_BOMB = zlib.compress(bytes(2**28))


def _packed(id: str, data: bytes, field: str = "frames.data", **changed: Any) -> Case:  # noqa: ANN401
    return _shard(id, field, frames=Tensor(dtype=1, shape=SHAPE, data=data), **changed)


def _poked(name: str, value: float) -> np.ndarray:
    array = GOOD[name].copy()
    array.flat[3] = value
    return array


VIEWS = np.zeros((4, 2, HISTORY, HEIGHT, WIDTH, 3), np.uint8)


def _extra(id: str, field: str, code: str = INVALID, **changed: Any) -> Case:  # noqa: ANN401
    """A shard with one array beside the others, which is good but for what is changed."""
    values = changed.pop("values", wire.tensor(VIEWS))
    fields = {"name": "views/night", "compression": PLAIN, "crc32": zlib.crc32(values.data)}
    extra = pb.ShardArray(values=values, **{**fields, **changed})
    return _shard(f"extra-{id}", f"extras[0].{field}", code, extras=[extra])


def _views(shape: list[int], data: bytes = b"", dtype: int = 1) -> Tensor:
    return Tensor(dtype=dtype, shape=shape, data=data)


FEW = list(VIEWS.shape)

IMAGE = (HISTORY, HEIGHT, WIDTH, 3)
RAYS = np.ones((4, 2, *IMAGE), np.float32)
STILL = RAYS.copy()
STILL[3, 1] = 0
UNKNOWN = RAYS.copy()
UNKNOWN[0, 0, 0, 0, 0, 0] = -np.inf
FELT = np.zeros((4, STEPS, 2), np.float32)


def _array(id: str, name: str, values: np.ndarray, field: str) -> Case:
    return _extra(id, field, name=name, values=wire.tensor(values))


def _second(id: str, first: list[pb.ShardArray], second: list[pb.ShardArray]) -> Case:
    """Shards whose arrays do not go together."""
    messages = [header(), shard(extras=first), shard(4, 8, extras=second)]
    return Case(f"second-{id}", messages, "shard.extras")


NIGHT, ONE_VIEW = sealed("views/night", VIEWS), sealed("views/night", VIEWS[:, :1])
PACKED_NIGHT = zlib.compress(VIEWS.tobytes())

BAD_UPLOADS = [
    _second("more-views", [NIGHT], [sealed("views/night", np.repeat(VIEWS, 2, axis=1))]),
    _second("fewer-views", [NIGHT], [ONE_VIEW]),
    _second("without-views", [NIGHT], []),
    _second("with-views", [], [NIGHT]),
    _second("other-name", [NIGHT], [sealed("views/noon", VIEWS)]),
    _second("another-group", [NIGHT], [NIGHT, sealed("views/noon", VIEWS)]),
    _second("proprio-wider", [sealed("proprio", FELT)], [sealed("proprio", FELT[..., :1])]),
    _array("directions-still", "directions/light", STILL, "values"),
    _array("directions-inf", "directions/light", UNKNOWN, "values"),
    _array("directions-bytes", "directions/light", RAYS.astype(np.uint8), "values.dtype"),
    _array("directions-none", "directions/light", RAYS[:, :0], "values.shape"),
    _array("views-real", "views/night", RAYS, "values.dtype"),
    _array("proprio-history", "proprio", FELT[:, :HISTORY], "values.shape"),
    _array("proprio-none", "proprio", FELT[:, :, :0], "values.shape"),
    _array("proprio-group", "proprio/arm", FELT, "name"),
    _array("proprio-wide", "proprio", FELT.astype(np.float64), "values.dtype"),
    _array("group-nameless", "views/", VIEWS, "name"),
    _array("group-space", "views/a b", VIEWS, "name"),
    _array("group-newline", "views/a\n", VIEWS, "name"),
    _array("group-upper", "Views/night", VIEWS, "name"),
    _extra("no-bytes", "values.data", values=_views(FEW)),
    _extra("plain-packed", "values.data", values=_views(FEW, PACKED_NIGHT)),
    _extra("plain-as-packed", "values.data", compression=2),
    _extra("cut-off", "values.data", compression=2, values=_views(FEW, PACKED_NIGHT[:-3])),
    _extra("trailing", "values.data", compression=2, values=_views(FEW, PACKED_NIGHT + b"x")),
    _extra(
        "crc-of-raw",
        "crc32",
        compression=2,
        values=_views(FEW, PACKED_NIGHT),
        crc32=zlib.crc32(VIEWS.tobytes()),
    ),
    _shard(
        "extras-over-64-mib",
        "extras[1].values.shape",
        extras=[
            sealed("views/a", np.zeros((4, 12_000, *IMAGE), np.uint8), packed=True),
            pb.ShardArray(name="views/b", values=_views([4, 12_000, *IMAGE]), compression=2),
        ],
    ),
    _extra("no-name", "name", name=""),
    _extra("name-path", "name", name="views/../../../x"),
    _extra("name-core", "name", name="frames"),
    _extra("name-long", "name", name="views/" + "x" * 101),
    _extra("name-unicode", "name", name="views/" + UNICODE),
    _extra("no-values", "values", values=Tensor()),
    _extra("rank", "values.shape", values=_views(FEW[:-1])),
    _extra("rank-absurd", "values", values=_views([1] * 4000)),
    _extra("anchors", "values", values=_views([3, *FEW[1:]])),
    _extra("none", "values.shape", values=_views([4, 0, *FEW[2:]])),
    _extra("negative", "values.shape", values=_views([4, -2, *FEW[2:]])),
    _extra("overflow", "values.shape", values=_views([4, 2**62, *FEW[2:]])),
    _extra("over-64-mib", "values.shape", values=_views([4, 2**16, *FEW[2:]])),
    _extra("history", "values.shape", values=_views([4, 2, HISTORY + 1, *FEW[3:]])),
    _extra("dtype", "values.dtype", values=_views(FEW, dtype=5)),
    _extra("dtype-unknown", "values", values=_views(FEW, dtype=99)),
    _extra("few", "values.data", values=_views(FEW, bytes(9))),
    _extra("crc", "crc32", crc32=1),
    _extra("compression", "compression", compression=0),
    _extra("compression-unknown", "compression", compression=9),
    _extra("bomb", "values.data", compression=2, values=_views(FEW, BIG_BOMB)),
    _extra("garbage", "values.data", compression=2, values=_views(FEW, b"\xff" * 99)),
    _extra(
        "nan",
        "values",
        name="proprio",
        values=wire.tensor(np.full((4, STEPS, 2), NAN, np.float32)),
    ),
    _shard(
        "extra-twice",
        "extras[1].name",
        extras=[
            pb.ShardArray(
                name="views/night",
                values=wire.tensor(VIEWS),
                compression=PLAIN,
                crc32=zlib.crc32(VIEWS.tobytes()),
            )
        ]
        * 2,
    ),
    _shard("extra-many", "extras", extras=[pb.ShardArray(name="proprio")] * 257),
    Case("nothing", [], "header"),
    Case("empty-message", [pb.UploadAnchorsRequest()], "header"),
    Case("shard-first", [shard()], "header"),
    Case("header-twice", [header(), header()], "shard"),
    Case("empty-second", [header(), pb.UploadAnchorsRequest()], "shard"),
    Case("short", [header(), shard()], "", LATE),
    Case("no-shards", [header()], "", LATE),
    _header("no-anchors", "anchors", anchors=0),
    _header("anchors-over", "", OVER, anchors=HUGE),
    _header("no-history", "history", history=0),
    _header("history-over", "history", history=257),
    _header("no-horizon", "horizon", horizon=0),
    _header("horizon-huge", "horizon", horizon=HUGE),
    _header("id-long", "request_id", request_id="x" * 129),
    _header("description-long", "description", description=UNICODE * 1025),
    _header("digest-short", "expected_digest", expected_digest="ab"),
    _header("digest-path", "expected_digest", expected_digest="../" * 21 + "a"),
    _shard("offset", "", LATE, offset=4),
    _shard("offset-huge", "", LATE, offset=HUGE),
    _shard("too-many", "frames.shape", start=0, stop=12)._replace(
        request=[header(anchors=5), shard(0, 12)]
    ),
    _shard("no-frames", "frames.dtype", frames=None),
    _frames("dtype", SHAPE, "dtype", dtype=5),
    _frames("dtype-unknown", SHAPE, "dtype", dtype=99),
    _frames("no-shape", [], "shape"),
    _frames("rank", SHAPE[1:], "shape"),
    _frames("rank-absurd", [1] * 4000, "shape"),
    _frames("steps", [4, STEPS + 1, HEIGHT, WIDTH, 3], "shape"),
    _frames("channels", [4, STEPS, HEIGHT, WIDTH, 1], "shape"),
    _frames("no-anchors", [0, *SHAPE[1:]], "shape"),
    _frames("no-width", [4, STEPS, HEIGHT, 0, 3], "shape"),
    _frames("negative", [-4, *SHAPE[1:]], "shape"),
    _frames("two-negatives", [-4, STEPS, -HEIGHT, WIDTH, 3], "shape"),
    _frames("side", [1, STEPS, 4097, 1, 3], "shape"),
    _frames("over-64-mib", [1, STEPS, 4096, 4096, 3], "shape"),
    _frames("overflow", [2**62, STEPS, 4096, 4096, 3], "shape"),
    _packed("few", zlib.compress(RAW[:-1])),
    _packed("many", zlib.compress(RAW + b"x")),
    _packed("bomb", BOMB),
    _packed("bomb-256-mib", BIG_BOMB),
    _packed("cut-off", PACKED[:-5]),
    _packed("garbage", b"\xff" * 99),
    _packed("empty", b""),
    _packed("gzip", b"\x1f\x8b" + PACKED),
    _packed("trailing", PACKED + b"more"),
    _packed("twice", PACKED + PACKED),
    _packed("plain-few", RAW[:-1], frame_compression=PLAIN),
    _packed("plain-packed", PACKED, frame_compression=PLAIN),
    _packed("zlib-plain", RAW),
    _packed("compression-unset", PACKED, "frame_compression", frame_compression=0),
    _packed("compression-unknown", PACKED, "frame_compression", frame_compression=9),
    _packed("no-crc", PACKED, "frame_crc32", frame_crc32=0),
    _packed("crc", PACKED, "frame_crc32", frame_crc32=zlib.crc32(RAW)),
    *[
        _shard(f"no-{name}", f"{name}.dtype", **{name: None})
        for name in ("action_blocks", "endpoint_states", "labels", "anchor_ids")
    ],
    _small("action_blocks", GOOD["action_blocks"].astype(np.float64), "dtype"),
    _small("action_blocks", GOOD["action_blocks"][:3], "shape"),
    _small("action_blocks", GOOD["action_blocks"][0], "shape"),
    _small("action_blocks", GOOD["action_blocks"][:, :3]),
    _small("action_blocks", GOOD["action_blocks"][:, :, :0], "shape"),
    _small("action_blocks", _poked("action_blocks", NAN)),
    _small("action_blocks", _poked("action_blocks", np.inf)),
    _small("endpoint_states", GOOD["endpoint_states"].astype(np.float32), "dtype"),
    _small("endpoint_states", GOOD["endpoint_states"][:0], "shape"),
    _small("endpoint_states", _poked("endpoint_states", -np.inf)),
    _small("labels", GOOD["labels"].astype(np.int32), "dtype"),
    _small("labels", GOOD["labels"][:, None], "shape"),
    _small("anchor_ids", GOOD["anchor_ids"][:2], "shape"),
    _small("anchor_ids", _poked("anchor_ids", -1)),
    _small("trajectory_ids", GOOD["trajectory_ids"].astype(np.float64), "dtype"),
    _small("trajectory_ids", _poked("trajectory_ids", -7)),
    _shard("labels-bytes", "labels.data", labels=Tensor(dtype=3, shape=[4], data=b"123")),
    Case(
        "second-wider",
        [header(), shard(), shard(4, 8, endpoint_states=wire.tensor(np.zeros((4, 3))))],
        "shard.endpoint_states.shape",
    ),
    Case(
        "second-without-trajectories",
        [header(), shard(), shard(4, 8, trajectory_ids=None)],
        "shard.trajectory_ids",
    ),
    Case(
        "wrong-expectation",
        [header(expected_digest="0" * 64, anchors=4), shard()],
        "header.expected_digest",
    ),
]


def _create(id: str, field: str, code: str = INVALID, **changed: Any) -> MethodCase:  # noqa: ANN401
    source = {"dataset": "tworoom.h5", "task": "tworoom", "count": 4}
    source |= changed.pop("source", {})
    fields = {"source": source, "history": 3, "horizon": HORIZON, **changed}
    request = pb.CreateAnchorSetRequest(**fields)
    return MethodCase(f"create-{id}", "AnchorService.CreateAnchorSet", request, field, code)


def _named(method: str, id: str, code: str, field: str, **fields: object) -> MethodCase:
    request = getattr(pb, f"{method}Request")(**fields)
    return MethodCase(f"{method}-{id}", f"AnchorService.{method}", request, field, code)


BAD_SETS = [
    _create("no-source", "source.dataset", source={"dataset": ""}),
    _create("no-task", "source.task", source={"task": ""}),
    _create("long", "source.task", source={"task": UNICODE * 20_000}),
    _create("unknown", "", ABSENT, source={"dataset": "x.h5"}),
    _create("up", "", "PERMISSION_DENIED", source={"dataset": "../x.h5"}),
    _create("nul", "source.dataset", source={"dataset": "a\0b"}),
    _create("task-unknown", "", ABSENT, source={"task": "chess"}),
    _create("task-other", "", LATE, source={"task": "pusht"}),
    _create("count-0", "source.count", source={"count": 0}),
    _create("count-over", "source.count", source={"count": 5000}),
    _create("count-huge", "source.count", source={"count": HUGE}),
    _create("episodes", "source.count", source={"count": 5, "one_per_episode": True}),
    _create("seed", "source.seed", source={"seed": 2**64 - 1}),
    _create("frameskip-0", "source.frameskip", source={"frameskip": 0}),
    _create("frameskip-huge", "source.count", source={"frameskip": HUGE}),
    _create("no-history", "history", history=0),
    _create("history-huge", "history", history=HUGE),
    _create("no-horizon", "horizon", horizon=0),
    _create("horizon-over", "source.count", horizon=256),
    _create("id-long", "request_id", request_id="x" * 129),
    _create("description-long", "description", description="x" * 1025),
    _named("GetUpload", "no-id", INVALID, "request_id"),
    _named("GetUpload", "long", INVALID, "request_id", request_id="x" * 129),
    _named("GetUpload", "unknown", ABSENT, "", request_id="nobody"),
    _named("ListAnchorSets", "page", INVALID, "page_size", page_size=1001),
    _named("ListAnchorSets", "token", INVALID, "page_token", page_token=UNICODE),
    *[
        _named(method, f"digest-{kind}", *(code or [INVALID]), field, digest=digest)
        for method in ("GetAnchorSet", "DeleteAnchorSet")
        for kind, digest, field, *code in (
            ("none", "", "digest"),
            ("path", "../" * 21 + "a", "digest"),
            ("nul", "\0" * 64, "digest"),
            ("long", UNICODE * 100_000, "digest"),
            ("unknown", "0" * 64, "", ABSENT),
        )
    ],
]
