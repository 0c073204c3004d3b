"""What the fuzzer sends: case number ``index`` of a seed, the same one every time."""

import copy
import math
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import anchor_wire
import given_wire
import grpc
import methods
import numpy as np
import planning_wire
import wire
from acpc.contract import Background, Composition, Perturbation, parse_grid
from acpc.v1 import anchor_service_pb2, perturbation_pb2
from acpc_server.rpc import reflection_versions
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2
from methods import methods_of, request_of
from mutations import Mutator, places

METHODS = methods.METHODS | methods_of(health_pb2.DESCRIPTOR, *reflection_versions())
# A whole call that takes longer hangs, whatever it asks for.
HANG_SECONDS = 60.0
# A dataset of few bytes and many pixels.
LARGE = "large.h5"
# Answer when they like: a watch may last as long as its job.
WAITING = ("WaitOperation", "WatchOperation", "Watch")


@dataclass(frozen=True)
class Names:
    """What exists at the server under test."""

    operation: str
    anchor_set: str
    given: str = "1" * 64  # an anchor set with views, directions and proprioception

    @property
    def words(self) -> list[str]:
        """Names that a mutation may put anywhere."""
        known = ["lewm", "lewm-base", "pldm", LARGE, "tworoom.h5", "tworoom", "fuzz", "weights.pt"]
        known += ["dino", "night", "light", "views/night", "directions/light", "proprio"]
        return [*known, self.operation, self.anchor_set, self.given]


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes:
        messages: Its messages as bytes, whatever the method takes.
        timeout: Deadline, seconds.
        end: ``close`` after the last message; ``open``: never; ``cancel`` after ``pause`` seconds.
    """

    index: int
    path: str
    messages: tuple[bytes, ...]
    metadata: tuple[tuple[str, str | bytes], ...]
    timeout: float
    end: str
    pause: float
    compression: grpc.Compression

    @property
    def price(self) -> int:
        """Bytes that it may move: its messages, parsed and copied, and a shard at a time inflated.

        A shard holds at most 64 MiB, which are there as bytes, as they are digested and written.
        """
        upload = self.path.endswith("/UploadAnchors")
        shards = map(_inflated, self.messages) if upload else ()
        return 3 * max(shards, default=0) + 8 * sum(map(len, self.messages))


def _inflated(message: bytes) -> int:
    """Bytes of frames that a shard declares, as far as a server takes them."""
    try:
        frames = anchor_service_pb2.UploadAnchorsRequest.FromString(message).shard.frames
    except DecodeError:
        return 0
    return min(2**26, max(0, math.prod(frames.shape)))


def seeds(names: Names) -> dict[str, list[Message]]:
    dataset = {"dataset": "tworoom.h5", "task": "tworoom", "count": 4}
    drift = {"shifts": [wire.noise()], "draws": 1, "horizon": 2}
    good: dict[str, list[Any]] = {
        "ComparePair": [wire.pair()],
        "ComparePairs": [{"pair_id": str(n), "pair": wire.pair()} for n in range(2)],
        "CertifyPool": [planning_wire.certify()],
        "Plan": [
            *(planning_wire.start(), planning_wire.proposed()),
            *(planning_wire.start(request_id="next"), planning_wire.proposed(1)),
        ],
        "PlanPaired": [planning_wire.paired()],
        "ScoreCheckpoint": [wire.score(request_id="fuzz")],
        "RunStudy": [{"checkpoint": wire.checkpoint(), "dataset": dataset, "drift": drift}],
        "WatchOperation": [{"name": names.operation}],
        "PreviewAnchors": [{"name": names.operation, "anchors": [0, 1]}],
        "UploadAnchors": list(anchor_wire.upload("fuzz")),
        "GetUpload": [{"request_id": "fuzz"}],
        "CreateAnchorSet": [{"source": dataset, "history": 3, "horizon": 4, "request_id": "f"}],
        "GetAnchorSet": [{"digest": names.anchor_set}],
        "ListAnchorSets": [{"page_size": 10}],
        "DeleteAnchorSet": [{"digest": names.anchor_set}],
        "ListDatasets": [{"page_size": 10}],
        "ListTasks": [{"page_size": 10}],
        "ListCheckpoints": [{"page_size": 10}],
        "GetCheckpoint": [{"checkpoint": wire.checkpoint()}],
        "LoadCheckpoint": [{"checkpoint": wire.checkpoint("pldm")}],
        "UnloadCheckpoint": [{"checkpoint": wire.checkpoint("pldm")}],
        "GetOperation": [{"name": names.operation}],
        "ListOperations": [{"filter": "state=failed"}],
        "CancelOperation": [{"name": names.operation}],
        "DeleteOperation": [{"name": names.operation}],
        "WaitOperation": [{"name": names.operation, "timeout": {"nanos": 10**7}}],
        "Check": [{}],
        "Watch": [{}],
        "List": [{}],  # of newer releases of grpcio-health-checking
        "ServerReflectionInfo": [{"list_services": ""}, {"file_by_filename": "x"}],
    }
    return _messages(good)


def given_seeds(names: Names) -> dict[str, list[Message]]:
    """Good calls with what callers bring of their own, of the methods that take it."""
    study = {
        "checkpoint": wire.checkpoint(),
        "anchor_set": names.given,
        "sensitivity": {"probes": 1, "horizon": 2, "directions": "light"},
    }
    score = wire.score(
        request_id="given",
        checkpoint=wire.checkpoint(given_wire.CHECKPOINT),
        dataset=None,
        anchor_set=names.given,
        perturbation=given_wire.given(),
    )
    large = {"dataset": LARGE, "task": "tworoom", "count": 4}
    good: dict[str, list[Any]] = {
        "CreateAnchorSet": [{"source": large, "history": 3, "horizon": 20, "request_id": "l"}],
        "ComparePair": [given_wire.pair()],
        "ComparePairs": [{"pair_id": "given", "pair": given_wire.pair()}],
        "CertifyPool": [given_wire.certify()],
        "Plan": given_wire.session(),
        "PlanPaired": [given_wire.paired()],
        "ScoreCheckpoint": [score],
        "RunStudy": [study],
        "UploadAnchors": [*given_wire.upload("given"), *_inflating()],
        "GetAnchorSet": [{"digest": names.given, "contents": True}],
    }
    return _messages(good)


def _inflating() -> list[anchor_service_pb2.UploadAnchorsRequest]:
    """An upload of few bytes that inflate to many."""
    side = 1024
    frames = wire.tensor(np.zeros((1, anchor_wire.STEPS, 1, 1, 3), np.uint8))
    frames.shape[2:4] = [side, side]
    frames.data = zlib.compress(bytes(anchor_wire.STEPS * side * side * 3))
    shard = anchor_wire.shard(0, 1, frames=frames)
    return [anchor_wire.header("inflating", anchors=1), shard]


def _messages(good: dict[str, list[Any]]) -> dict[str, list[Message]]:
    """Those of each method by its path; fields become the message that the method takes."""
    return {
        path: [request_of(method, **x) if isinstance(x, dict) else x for x in good[method.name]]
        for path, method in METHODS.items()
        if method.name in good
    }


class Cases:
    def __init__(self, seed: int, names: Names) -> None:
        self._seed = seed
        self._words = names.words
        self._seeds = seeds(names)
        self._given = given_seeds(names)
        self._paths = sorted(METHODS)

    def case(self, index: int) -> Case:
        rng = random.Random(f"{self._seed}:{index}")
        mutator = Mutator(rng, self._words)
        path = self._paths[index % len(self._paths)]
        method = METHODS[path]
        chosen = self._given.get(path, []) if rng.random() < 0.5 else []
        messages = [copy.deepcopy(message) for message in chosen or self._seeds[path]]
        if rng.random() < 0.4:
            _other_changes(rng, messages)
        if rng.random() < 0.15:
            messages = [mutator.generate(method.input_type) for _ in messages]
        for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
            mutator.mutate(rng.choice(messages))
        if rng.random() < (0.4 if method.client_streaming else 0.1):
            _disorder(rng, messages)
        for message in messages:  # jobs and uploads that no other case has begun, or that one has
            if "request_id" in message.DESCRIPTOR.fields_by_name and rng.random() < 0.4:
                message.request_id = f"fuzz-{rng.choice((index, rng.randrange(20)))}"
        for message in messages:
            if rng.random() < 0.7:
                _seal(message)
        damage = rng.choice((0.0, 0.0, 0.5))
        end = rng.choices(("close", "open", "cancel"), (85, 7, 8))[0]
        waits = method.name in WAITING or end != "close"
        hurried = waits or rng.random() < 0.15
        return Case(
            index=index,
            path=path,
            messages=tuple(mutator.wire_bytes(message, damage) for message in messages),
            metadata=_metadata(rng),
            timeout=rng.choice((0.001, 0.02, 0.2, 1.0)) if hurried else HANG_SECONDS,
            end=end,
            pause=rng.choice((0.0, 0.001, 0.02, 0.1)),
            compression=rng.choice(
                (*[grpc.Compression.NoCompression] * 18, *list(grpc.Compression)[1:])
            ),
        )


def _other_changes(rng: random.Random, messages: list[Message]) -> None:
    """Another kind at every perturbation, or a composition of several."""
    for message in messages:
        for owner, field in list(places(message)):
            value = getattr(owner, field.name)
            for spec in value if field.is_repeated else (value,):
                if isinstance(spec, perturbation_pb2.PerturbationSpec):
                    spec.CopyFrom(_change(rng).to_spec())


def _change(rng: random.Random) -> Perturbation:
    kinds = [rng.choice((*wire.GRIDS, "plate")) for _ in range(rng.choice((1, 1, 2, 4)))]
    parts = [_plate(rng) if x == "plate" else rng.choice(parse_grid(x)) for x in kinds]
    return Composition(tuple(parts)) if len(parts) > 1 else parts[0]


def _plate(rng: random.Random) -> Background:
    """An empty scene of another size than the frames, or of another aspect."""
    tall, wide = (rng.choice((1, 28, wire.SIDE, 200)) for _ in range(2))
    return Background(rng.random(), plate=bytes(tall * wide * 3), plate_width=wide)


def _disorder(rng: random.Random, messages: list[Message]) -> None:
    """Messages that come twice, in another order, too often or not at all."""
    choice = rng.randrange(5)
    if choice == 0:
        rng.shuffle(messages)
    elif choice == 1:
        messages.clear()
    elif choice == 2:
        messages.append(rng.choice(messages))
    elif choice == 3:
        messages.insert(0, messages[-1])
    else:
        messages.extend(messages[-1:] * 20)


def _seal(message: Message) -> None:
    """Put right the checksums of a shard that was changed, so that what is behind them is seen."""
    if isinstance(message, anchor_service_pb2.UploadAnchorsRequest) and message.HasField("shard"):
        message.shard.frame_crc32 = zlib.crc32(message.shard.frames.data)
        for extra in message.shard.extras:
            extra.crc32 = zlib.crc32(extra.values.data)


def _metadata(rng: random.Random) -> tuple[tuple[str, str | bytes], ...]:
    makers: Sequence[Callable[[], list[tuple[str, str | bytes]]]] = (
        lambda: [("x-request-id", rng.choice(("", "a" * 7000, "a b", "%00", "fuzz")))],
        lambda: [("x-request-id", "one"), ("x-request-id", "two")],
        lambda: [("x-request-id-bin", rng.randbytes(20))],
        lambda: [(f"x-{n}", "v") for n in range(rng.choice((10, 200)))],
        lambda: [("x-large", "a" * rng.choice((1000, 7500)))],
        lambda: [("x-large-bin", rng.randbytes(rng.choice((1, 1000, 5000))))],
        lambda: [("authorization", rng.choice(("Bearer ", "Basic YTpi", "bearer a.b.c", "x")))],
        lambda: [("traceparent", rng.choice(("00-0-0-0", "00-" + "f" * 32 + "-" + "0" * 16)))],
        lambda: [("grpc-trace-bin", rng.randbytes(29)), ("grpc-tags-bin", rng.randbytes(9))],
    )
    return tuple(rng.choice(makers)()) if rng.random() < 0.15 else ()
