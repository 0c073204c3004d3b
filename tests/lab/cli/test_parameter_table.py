"""The table of parameters: every field of a request has its four other parts, and they work."""

import json
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import parameter_table as table
import pytest
from acpc_command import Acpc
from anchor_counterparty import AnchorCounterparty
from client_counterparty import served
from client_fixtures import BLOCKS, HISTORY
from client_messages import status
from google.protobuf.message import Message

pytestmark = pytest.mark.edge

ROWS = [row for section in table.SECTIONS for row in table.rows(section)]


def test_every_field_of_every_request_is_a_row() -> None:
    assert {row.field for row in ROWS} == table.every_field()


@pytest.mark.parametrize("part", ["argument", "option"])
def test_no_part_of_a_row_is_missing(part: str) -> None:
    """Name the option in RENAMED, or say in NO_OPTION or NO_ARGUMENT why there is none.

    That there are words, and more than a range, tests/contract/test_requests_declared.py says.
    """
    missing = [f"{row.section.title}: {row.parameter}" for row in ROWS if not getattr(row, part)]
    assert not missing


@pytest.mark.parametrize(
    ("reasons", "part"), [(table.NO_OPTION, "option"), (table.NO_ARGUMENT, "argument")]
)
def test_every_exception_is_needed(reasons: dict[tuple[str, str], str], part: str) -> None:
    excepted = [row for row in ROWS if getattr(row, part).startswith("none: ")]
    for (section, path), reason in reasons.items():
        assert any(
            fnmatch(row.section.title, section)
            and fnmatch(row.parameter, path)
            and getattr(row, part) == f"none: {reason}"
            for row in excepted
        ), (section, path)


def present(message: Message, path: str = "") -> Iterator[str]:
    """The fields of a message that are set, as the table names them."""
    for field, value in message.ListFields():
        here = f"{path}.{field.name}".lstrip(".")
        yield here
        if isinstance(value, Message):
            yield from present(value, here)


DATASET = ["--dataset", "a.h5", "--task", "mine", "--anchors", 7, "--episodes", "0-9"]
DRAW = {"seed": 8, "frameskip": 2, "one_per_episode": False, "window_future_frames": 9,
        "sample": "episodes"}  # fmt: skip
CHECKPOINT = f"a:w.pt@{'d' * 64}"
SCORE = [
    CHECKPOINT, "--reference", f"b:w.pt@{'e' * 64}", "--shift", "blur:15",
    "--population", "dataset", "--until-decided", 5,
]  # fmt: skip
HOW = {
    "protocol": {
        "reading": "released", "partner_past": "own", "neighbourhood": 0.25, "draws": 2, "seed": 3,
        "horizon": 4, "quantile": 0.5, "margin": 0.2, "weights": [0.5, 0.25, 0.25, 0],
        "extra_horizons": [1, 2], "extra_quantiles": [0.8, 0.95],
    },
    "thresholds": {"ir": 0.2, "sr": 0.9},
    "evidence": {"confidence": 0.9, "resamples": 500, "seed": 5},
    "anchors": DRAW,
    "numeric_mode": "bf16",
}  # fmt: skip
THRESHOLDS = {"thresholds": str(Path(__file__).parents[1] / "thresholds.json")}
VIEWS = ["--shift", "blur:15", "--draws", 2]
SETTINGS = {"seed": 3, "anchor": 4, "numeric_mode": "bf16"}
PLANNER = {"cost_reduction": "mean", "endpoint_tolerance": 0.01,
           "objective": {"control_weights": [0.1]}, "apply_to": "both"}  # fmt: skip
CEM = {"budget": {"candidates": 32, "elites": 4, "iterations": 3, "horizon": 2},
       "sampling_seed": 5, "returns": "best"}  # fmt: skip
DRAWN = {"draws": 3, "seed": 3, "horizon": 4}
STUDY = {"anchors": DRAW, "numeric_mode": "bf16"}


def how(**keys: object) -> list[str]:
    """The option ``--protocol`` with the keys inline."""
    return ["--protocol", json.dumps(keys)]


ASKED: dict[str, tuple[str, list[list[Any]]]] = {
    "score": (
        "ScoreCheckpoint",
        [
            [*SCORE, *DATASET, *how(**HOW), "--request-id", "mine", "--no-wait"],
            ["a", "--anchor-set", "f" * 64, "--shift", "blur:15", "--no-wait", *how(**THRESHOLDS)],
        ],
    ),
    "compare": (
        "ComparePair",
        [
            [CHECKPOINT, *VIEWS, "--input", "pair.npz", *how(**SETTINGS, weights=[0.5, 0.5])],
            ["a", "--input", "pair-views.npz"],
        ],
    ),
    "certify": (
        "CertifyPool",
        [
            [CHECKPOINT, *VIEWS, "--elites", 2, "--input", "pool.npz",
             *how(**SETTINGS, **PLANNER, weights=[0.5, 0.25, 0.25], kept_elites=1,
                  temperature=0.5)],
            ["a", "--input", "pool-views.npz"],
        ],
    ),
    "plan-paired": (
        "PlanPaired",
        [
            [CHECKPOINT, *VIEWS, "--input", "moment.npz",
             *how(**SETTINGS, **PLANNER, **CEM, choices=True)],
            ["a", "--input", "moment-views.npz"],
        ],
    ),
    **{
        f"study run {name}": (
            "RunStudy",
            [
                ["--checkpoints", "rows.csv", *DATASET[4:], *shift, *how(**STUDY, **keys),
                 "--out", "first"],
                ["--checkpoints", "set.csv", *how(**of_set), "--out", "second"],
            ],
        )
        for name, shift, keys, of_set in (
            ("drift", VIEWS[:2], DRAWN | {"groups": 4, "reading": "released",
                                          "destroyed": "future"}, {}),
            ("planner", VIEWS[:2], {"draws": 3, "seed": 3, **CEM, "history": 2, "goal_offset": 3,
                                    "cost_reduction": "sum", "reading": "released"}, {}),
            ("geometry", VIEWS[:2], DRAWN | {"motion": True}, {}),
            ("sensitivity", [], {"probes": 2, "seed": 3, "horizon": 4, "step": 0.01},
             {"directions": "light"}),
        )
    },
}  # fmt: skip


@pytest.fixture
def folder() -> None:
    """Goes where the inputs lie by the names above; one that ends in views has an array of them."""
    own = np.ones((len(HISTORY), 2), np.float32)
    pair = {"history": HISTORY, "action_blocks": BLOCKS, "observed_future": HISTORY[:2]}
    pair |= {"proprio": own, "future_proprio": own[:2]}
    moment = {"history": HISTORY, "goal": HISTORY[0], "past_blocks": BLOCKS[:2]}
    moment |= {"proprio": own, "goal_proprio": own[0]}
    pool = {**moment, "candidates": np.ones((5, 3, 2), np.float32)}
    pool["offsets"] = np.ones(5, np.float32)
    for name, arrays in {"pair": pair, "pool": pool, "moment": moment}.items():
        np.savez(name, **arrays)
        np.savez(Path(f"{name}-views"), **arrays, views=HISTORY[None])
    columns = "task,run,level,checkpoint,weights,dataset,preset,anchor_set\n"
    tasks = ("room", "hall")  # a planner study takes two
    listed = "".join(f"{task},0,0,a,w.pt,a.h5,tworoom,\n" for task in tasks)
    stored = "".join(f"{task},0,0,a,w.pt,,,{'f' * 64}\n" for task in tasks)
    Path("rows.csv").write_text(columns + listed)
    Path("set.csv").write_text(columns + stored)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", ASKED)
def test_an_option_sets_its_field(command: str, acpc: Acpc) -> None:
    """Every option that the table names, given to the command, arrives where the table says."""
    method, calls = ASKED[command]
    enough = status(grpc.StatusCode.INVALID_ARGUMENT, "only the request is of interest")
    acpc.server.refusals["RunStudy"].extend([enough] * 2 * len(calls))
    for words in calls:
        acpc(*command.split(), *words, code=method == "RunStudy")
    assert_promised(command, acpc.server.requests[method])


def test_an_option_of_a_set_sets_its_field(acpc: Acpc) -> None:
    store = AnchorCounterparty()
    options = [
        *DATASET[2:], *how(**DRAW, reading="released"),
        "--history", 2, "--horizon", 6, "--description", "x", "--request-id", "r",
    ]  # fmt: skip
    with served(store) as address:
        answer = acpc("anchors", "create", "a.h5", *options, "--target", address)
    assert answer.exit_code == 0, answer.output
    assert_promised("anchors create", store.requests["CreateAnchorSet"])


def assert_promised(command: str, requests: list[Any]) -> None:
    """All that the table says the command can set is set in one of the requests."""
    arrived = {path for sent in requests for path in present(sent)}
    rows = [row for row in ROWS if row.section.command == command]
    promised = {row.parameter for row in rows if not row.option.startswith("none: ")}
    assert len(promised) > 10
    assert promised <= arrived
