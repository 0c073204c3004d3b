"""The answers that a release keeps: asked of a server, written so that releases can be compared.

    python tests/harness/golden.py FILE                  # the answers of this checkout, to the bit
    python tests/harness/golden.py FILE --against OTHER  # and where they differ from another's
    python tests/harness/golden.py --keep                # tests/e2e/golden.json, compared by value

Requests and answers are messages; nothing of the client. Identities, times, versions are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anchor_wire
import grpc
import numpy as np
import wire
from acpc.v1 import anchor_service_pb2_grpc, diagnostic_service_pb2_grpc
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1.scoring_service_pb2 import (
    ScoreCheckpointRequest,
    ScoreCheckpointResponse,
    ScoreProtocol,
)
from acpc.v1.scoring_service_pb2_grpc import ScoringServiceStub
from acpc.v1.study_service_pb2 import RunStudyRequest, RunStudyResponse
from acpc.v1.study_service_pb2_grpc import StudyServiceStub
from google.longrunning import operations_pb2, operations_pb2_grpc
from google.protobuf.message import Message
from server_process import ServerProcess

HERE = Path(__file__).resolve().parent
WORLD = HERE.parents[1] / "examples" / "two_room"
KEPT = HERE.parent / "e2e" / "golden.json"
EPISODES = 30  # of the demo's world
GOOD, BASE = "two-room-augmented", "two-room-base"
HISTORY, HORIZON, WIDTH, SIDE = 3, 5, 10, 32
# What two runs of one request may differ in.
FREE = {
    "request_id", "timing", "create_time", "start_time", "end_time", "code_version",
    "torch_version", "device", "image_codec",
}  # fmt: skip
# Compared to the bit alone: words, and what the arithmetic of a processor decides.
EXACT = {"method", "notes", "summary", "rounding_floor"}
# Between processors: relative, and per number of what is a difference of larger ones.
TOLERANCE, FLOOR = 1e-3, 2e-4
Values = dict[str, Any]


def write_world(folder: Path) -> Path:
    """A folder of datasets with the demo's world, 30 episodes of it; whole numbers alone."""
    sys.path.insert(0, str(WORLD))
    from dataset import write_dataset

    write_dataset(folder / "two-room.h5", episodes=EPISODES)
    (folder / "two-room.yaml").write_bytes((WORLD / "two-room.yaml").read_bytes())
    return folder


def frames(*shape: int, seed: int = 0) -> np.ndarray:
    """Random frames (*shape, 32, 32, 3)."""
    drawn = wire.frames(int(np.prod(shape)), height=SIDE, width=SIDE, seed=seed)
    return drawn.reshape(*shape, SIDE, SIDE, 3)


def moment() -> dict[str, Any]:
    """What every planner's request has."""
    goal = frames(1, seed=8)[0]
    return {
        "checkpoint": wire.checkpoint(GOOD),
        "history": wire.tensor(frames(HISTORY)),
        "past_blocks": wire.tensor(wire.blocks(HISTORY - 1)),
        "goal": pb.Goal(frame=wire.tensor(goal)),
        "perturbations": wire.several(wire.noise(1e-4), wire.noise(0.05), draws=3, seed=3),
    }


def pool(count: int = 64) -> Message:
    """Candidates (count, 5, 10)."""
    shape = (count, HORIZON, WIDTH)
    return wire.tensor(np.random.default_rng(4).standard_normal(shape, np.float32))


def interactive() -> Iterator[tuple[str, str, list[Any]]]:
    """Name, method and messages of each call of the diagnostic service."""
    blocks = wire.tensor(wire.blocks(HISTORY + 7))
    pair = {
        "checkpoint": wire.checkpoint(GOOD),
        "history": wire.tensor(frames(HISTORY)),
        "action_blocks": blocks,
    }
    both = wire.several(wire.noise(), wire.blur(), draws=2, seed=4, anchor=2)
    yield "pair", "ComparePair", [pb.ComparePairRequest(**pair, perturbations=both)]
    views = wire.tensor(frames(2, HISTORY, seed=5))
    yield "pair of views", "ComparePair", [pb.ComparePairRequest(**pair, explicit_views=views)]
    certify = pb.CertifyPoolRequest(**moment(), candidates=pool(), elite_count=8)
    yield "pool", "CertifyPool", [certify]
    rough = {"norm": pb.NORM_L1, "squared": False, "weight": 0.1, "step_weights": [0.2] * HORIZON}
    asked = {
        "objective": {"terms": [{}, rough], "control_weights": [0.01]},
        "kept_elites": 2,
        "temperature": 0.5,
        "offsets": wire.tensor(np.linspace(0, 1, 24, dtype=np.float32)),
        "infeasible": [1, 4],
        "elite_count": 4,
    }
    certify = pb.CertifyPoolRequest(**moment(), candidates=pool(24), **asked)
    yield "objective", "CertifyPool", [certify]
    mean, std = (wire.tensor(np.full((HORIZON, WIDTH), x, np.float32)) for x in (0.5, 2.0))
    proposal = {"mean": mean, "std": std, "candidates": 24, "seed": 6}
    plan = [
        pb.PlanRequest(start=pb.PlanStart(**moment(), elite_count=4)),
        pb.PlanRequest(pool={"candidates": pool(24)}),
        pb.PlanRequest(pool={"iteration": 1, "proposal": proposal}),
    ]
    yield "plan", "Plan", plan
    budget = pb.CemBudget(candidates=24, elites=4, iterations=4, horizon=HORIZON)
    paired = pb.PlanPairedRequest(**moment(), budget=budget, sampling_seed=1, choices=True)
    yield "paired", "PlanPaired", [paired]


def score(**changed: object) -> Message:
    """A request for a score of 20 anchors."""
    fields = {
        "checkpoint": wire.checkpoint(GOOD),
        "reference": wire.checkpoint(BASE),
        "dataset": {"dataset": "two-room.h5", "task": "two-room.yaml", "count": 20},
        "perturbation": wire.noise(0.05),
        "protocol": {"draws": 2},
    }
    return wire.score(**{**fields, **changed})


def study(**kind: object) -> Message:
    """A request for a study of 8 anchors."""
    anchors = {"dataset": "two-room.h5", "task": "two-room.yaml", "count": 8}
    return RunStudyRequest(checkpoint=wire.checkpoint(GOOD), dataset=anchors, **kind)


def jobs(anchor_set: str) -> Iterator[tuple[str, Any]]:
    """Name and request of each job."""
    composed = {"parts": [{"brightness": {"change": 0.2}}, {"gaussian_blur": {"kernel_size": 3}}]}
    released = ScoreProtocol(draws=2, reading=2)
    yield "score", score()
    yield "score released", score(protocol=released, reference=None)
    yield "score composed", score(perturbation={"composition": composed})
    yield "score fp64", score(numeric_mode=4, reference=None)
    yield "score decided", score(until_decided={"batch": 10})
    given = {
        "perturbation": {"given_views": {"group": "night"}},
        "protocol": {"horizon": 4, "draws": 2},
    }
    yield "score given", score(dataset=None, anchor_set=anchor_set, reference=None, **given)
    yield "drift", study(drift={"draws": 1, "groups": 4})
    small = pb.CemBudget(candidates=12, elites=3, iterations=2, horizon=3)
    yield "planner", study(planner={"budget": small, "shifts": [wire.noise(0.05)]})
    yield "geometry", study(geometry={"draws": 2, "motion": True})
    yield "sensitivity", study(sensitivity={"probes": 2})


def upload() -> Iterator[Any]:
    """Four anchors with a group of views."""
    count, steps = 4, HISTORY + 4
    yield anchor_wire.header(anchors=count, history=HISTORY, horizon=4)
    rng = np.random.default_rng(11)
    yield anchor_wire.sealed(
        frames=wire.tensor(frames(count, steps)),
        action_blocks=wire.tensor(rng.standard_normal((count, steps - 1, WIDTH), np.float32)),
        endpoint_states=wire.tensor(rng.standard_normal((count, 2))),
        labels=wire.tensor(np.arange(count) % 2),
        anchor_ids=wire.tensor(np.arange(count)),
        extras=[anchor_wire.further("views/night", frames(count, 2, HISTORY, seed=9))],
    )


def values(message: Message, prefix: str = "") -> Values:
    """Every value of a message by its path; tensors as dtype, shape and list."""
    found: Values = {}
    for field, value in message.ListFields():
        path = f"{prefix}{field.name}"
        if field.name in FREE:
            continue
        if field.message_type and field.message_type.full_name == "acpc.v1.Tensor":
            for index, tensor in enumerate(value if field.is_repeated else [value]):
                dtype = {code: name for name, code in wire.CODES.items()}[tensor.dtype]
                array = np.frombuffer(tensor.data, dtype)
                found[f"{path}[{index}]"] = [dtype, list(tensor.shape), array.tolist()]
        elif field.message_type:
            for index, part in enumerate(value if field.is_repeated else [value]):
                found |= values(part, f"{path}[{index}]." if field.is_repeated else f"{path}.")
        else:
            found[path] = list(value) if field.is_repeated else value
    return found


def answers(address: str) -> dict[str, Values]:
    """Ask a server of the demo's world for all of them; the values of each answer."""
    asked: dict[str, Values] = {}
    with grpc.insecure_channel(address) as channel:
        diagnostics = diagnostic_service_pb2_grpc.DiagnosticServiceStub(channel)
        for name, method, messages in interactive():
            call, several = getattr(diagnostics, method), method == "Plan"
            answered = call(iter(messages) if several else messages[0], timeout=300)
            for index, answer in enumerate(answered if several else [answered]):
                asked[f"{name} {index}" if several else name] = values(answer)
        anchors = anchor_service_pb2_grpc.AnchorServiceStub(channel)
        made = anchors.UploadAnchors(upload(), timeout=300).anchor_set
        asked["upload"] = {"digest": made.digest}
        submit: dict[type, Any] = {
            RunStudyRequest: (StudyServiceStub(channel).RunStudy, RunStudyResponse),
            ScoreCheckpointRequest: (
                ScoringServiceStub(channel).ScoreCheckpoint, ScoreCheckpointResponse
            ),
        }  # fmt: skip
        operations = operations_pb2_grpc.OperationsStub(channel)
        for name, request in jobs(made.digest):
            method, kind = submit[type(request)]
            done = method(request, timeout=300)
            while not done.done:
                wait = operations_pb2.WaitOperationRequest(name=done.name)
                done = operations.WaitOperation(wait, timeout=600)
            answer = kind()
            assert done.response.Unpack(answer), done.error
            asked[name] = values(answer)
    return asked


def exact(found: Values) -> Values:
    """Values to compare to the bit; NaN is one value."""
    return {path: json.dumps(value) for path, value in found.items()}


def summary(found: Values) -> Values:
    """Values to compare within rounding: arrays by their digest, or their count and sums."""
    short: Values = {}
    for path, value in found.items():
        if path.rsplit(".", 1)[-1].split("[")[0] in EXACT:
            continue
        if isinstance(value, list) and len(value) == 3 and isinstance(value[2], list):
            dtype, shape, numbers = value
            array = np.asarray(numbers, dtype)
            if dtype.startswith("float"):
                finite = array[np.isfinite(array)].astype(np.float64)
                numbers = [len(finite), float(finite.sum()), float(np.abs(finite).sum())]
            else:
                numbers = hashlib.sha256(array.tobytes()).hexdigest()
            short[path] = [dtype, shape, numbers]
        else:
            short[path] = value
    return short


def apart(kept: object, found: object, count: int = 1) -> bool:
    """Whether two values are not the same: floats beyond rounding, all else at all.

    ``count`` is how many numbers a float is the sum of.
    """
    if isinstance(kept, list) and isinstance(found, list):
        many = kept[0] if len(kept) == 3 and isinstance(kept[0], int) else 1
        return len(kept) != len(found) or any(
            apart(*two, many) for two in zip(kept, found, strict=True)
        )
    if isinstance(kept, float) and isinstance(found, float | int):
        return not np.isclose(found, kept, rtol=TOLERANCE, atol=FLOOR * count, equal_nan=True)
    return kept != found


def main() -> None:
    """Ask this checkout, write, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, nargs="?", help="where the answers go, as JSON")
    parser.add_argument("--against", type=Path, help="answers of another checkout")
    parser.add_argument("--keep", action="store_true", help="write what the tests compare with")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (datasets := Path(folder) / "datasets").mkdir()
        roots = WORLD / "checkpoints", write_world(datasets), Path(folder) / "state"
        with ServerProcess(*roots) as server:
            found = answers(server.address)
    if args.keep:
        kept = {name: summary(answer) for name, answer in found.items()}
        KEPT.write_text(json.dumps(kept, indent=0) + "\n")
    whole = {name: exact(answer) for name, answer in found.items()}
    if args.file:
        args.file.write_text(json.dumps(whole, indent=0))
    if args.against:
        other = json.loads(args.against.read_text())
        for name in sorted(whole.keys() | other.keys()):
            mine, theirs = whole.get(name, {}), other.get(name, {})
            paths = sorted(mine.keys() | theirs.keys())
            differ = [path for path in paths if mine.get(path) != theirs.get(path)]
            print(f"{name}: {len(paths) - len(differ)} of {len(paths)} values equal")
            for path in differ:
                print(f"    {path}: {theirs.get(path, '-')[:60]} -> {mine.get(path, '-')[:60]}")


if __name__ == "__main__":
    main()
