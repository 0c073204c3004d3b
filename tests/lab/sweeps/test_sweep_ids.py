"""The ids of cells are those of the builds before: no finished cell is submitted again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acpc.contract import ScoreProtocol, Thresholds
from acpc_client import AcpcClient, Checkpoint, CheckpointState
from acpc_lab.campaigns import Link
from acpc_lab.report import from_sweep, render
from acpc_lab.sweeps import Cell, Node, Sweep, SweepFolder
from acpc_lab.sweeps.anchors import Depot, read_anchors
from acpc_lab.sweeps.plan import Plan, make_plan

Make = Callable[..., Sweep]
SHIFTS = ["gaussian_noise:0.08"]
# What the file says, the id of its one cell, and the request id of its first attempt: computed by
# the build before the defaults were part of the contract.
IDS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "a-gaussian_noise-0.08-seed0-14020a996a", "26cbcd16-b14f-5e55-bb94-f0c96bc946c8"),
    (
        {"protocol": {"draws": 5}},
        "a-gaussian_noise-0.08-seed0-5dfd2f86eb",
        "2a0d4fc3-a864-5106-a3fc-6f7cee287e84",
    ),
    (
        {"protocol": {"draws": 6}},
        "a-gaussian_noise-0.08-seed0-1321d9c388",
        "18d79213-7d82-5314-8ffe-220d7ace5e49",
    ),
    (
        {"protocol": {"draws": None}},
        "a-gaussian_noise-0.08-seed0-14020a996a",
        "26cbcd16-b14f-5e55-bb94-f0c96bc946c8",
    ),
    (
        {"protocol": {"horizon": 8}},
        "a-gaussian_noise-0.08-seed0-beaa025669",
        "0887984e-1181-5707-b9e4-e2e33067c964",
    ),
    (
        {"protocol": {"quantile": 0.9}},
        "a-gaussian_noise-0.08-seed0-594b1a1a12",
        "52f2ef03-531f-592b-85d3-5606876dc98a",
    ),
    (
        {"protocol": {"quantile": 1}},
        "a-gaussian_noise-0.08-seed0-ca9fe9d4c6",
        "d62fe1c3-c6dd-5485-9ef9-0275bf62adb3",
    ),
    (
        {"protocol": {"margin": 0.1}},
        "a-gaussian_noise-0.08-seed0-3aa88f94c5",
        "e81ad304-b6a8-5eba-868d-309855bf2450",
    ),
    (
        {"protocol": {"margin": 0}},
        "a-gaussian_noise-0.08-seed0-28e4febb44",
        "a2615d98-68fb-565b-973c-9a7129bdac7d",
    ),
    (
        {"protocol": {"draws": 5, "horizon": 8, "quantile": 0.9, "margin": 0.1}},
        "a-gaussian_noise-0.08-seed0-a324fb467a",
        "f84de172-11db-51bc-9190-4b48d5d74c0b",
    ),
    (
        {
            "protocol": {
                "weights": [0.5, 0.5],
                "horizon": 2,
                "extra_horizons": [1],
                "extra_quantiles": 0.5,
            }
        },
        "a-gaussian_noise-0.08-seed0-241174d910",
        "d10fddf2-62ce-53d5-a755-7f88d1d0a0d4",
    ),
    (
        {"thresholds": {"ir": 0.3}},
        "a-gaussian_noise-0.08-seed0-d6aecc7ca9",
        "9e6da0e2-91c9-5070-92ef-90459c0e2df7",
    ),
    (
        {"thresholds": {"sr": 0.95}},
        "a-gaussian_noise-0.08-seed0-46351bcb7e",
        "92f9bdf7-7d13-55da-94b1-2077c481c6ab",
    ),
    (
        {"thresholds": {"ir": 0.3, "sr": 0.95}},
        "a-gaussian_noise-0.08-seed0-62ae5ee4b3",
        "33ec7873-0df2-5a0a-b38b-86307ec49ed4",
    ),
    (
        {"thresholds": {"ir": 1}},
        "a-gaussian_noise-0.08-seed0-58a2ad51fb",
        "b93d0ae9-ed7f-5ea4-adb4-607bb8d973d2",
    ),
    (
        {"seeds": [0]},
        "a-gaussian_noise-0.08-seed0-14020a996a",
        "26cbcd16-b14f-5e55-bb94-f0c96bc946c8",
    ),
    (
        {"seeds": 7},
        "a-gaussian_noise-0.08-seed7-d1ed8eb6f9",
        "6b2ecc27-2d3d-5f81-a00f-f73ba316b84a",
    ),
    (
        {"anchors": {"dataset": "rooms.h5", "task": "tworoom", "seed": 9101}},
        "a-gaussian_noise-0.08-seed0-5b8e44b8c1",
        "b546c5ff-9371-5a2f-8d88-dbaa656a3a62",
    ),
    (
        {"anchors": {"dataset": "rooms.h5", "task": "tworoom", "seed": 0}},
        "a-gaussian_noise-0.08-seed0-1b887d9013",
        "1beb6c37-6486-5d80-9af2-f259e8efcdf8",
    ),
    (
        {
            "anchors": {
                "dataset": "rooms.h5",
                "task": "tworoom",
                "count": 100,
                "frameskip": 1,
                "one_per_episode": False,
            }
        },
        "a-gaussian_noise-0.08-seed0-3ec63cec33",
        "20786dbb-02af-5b68-9c97-5c5e5ee24c03",
    ),
    (
        {"anchors": {"set": "ab" * 32}},
        "a-gaussian_noise-0.08-seed0-6ef30fad95",
        "2bdd22f8-2adb-5e2b-bceb-357e81dd712a",
    ),
    (
        {
            "checkpoints": [
                {
                    "name": "a",
                    "labels": {"level": 0.5},
                    "anchors": {"dataset": "rooms.h5", "task": "tworoom", "seed": 9101},
                }
            ],
            "thresholds": {"ir": 0.3},
        },
        "a-gaussian_noise-0.08-seed0-e84b1e403c",
        "6022a392-ea9e-5aad-89e6-75b2e4b90270",
    ),
    (
        {"reference": "b"},
        "a-gaussian_noise-0.08-seed0-32365232db",
        "97861273-225b-5799-9c57-67c152404bae",
    ),
    (
        {"reference": "a", "protocol": {"draws": 5}},
        "a-gaussian_noise-0.08-seed0-7e5a947b15",
        "0586c2de-cd21-5cf3-927a-6de7bdb8ec6d",
    ),
    (
        {"numeric_mode": "server_default"},
        "a-gaussian_noise-0.08-seed0-14020a996a",
        "26cbcd16-b14f-5e55-bb94-f0c96bc946c8",
    ),
    (
        {"numeric_mode": "fp32"},
        "a-gaussian_noise-0.08-seed0-82828adbfc",
        "4c51bd19-6d11-52bc-8626-272b1cc40cff",
    ),
    (
        {"shifts": ["motion_blur:9"]},
        "a-motion_blur-9-seed0-1539d54da0",
        "4073bdd6-5e2c-5e8d-a34a-378a990e8b3f",
    ),
    (
        {"shifts": [{"motion_blur": {"length": 9, "angle": 45}}]},
        "a-motion_blur-9-45-seed0-393763d08b",
        "31ff6d76-0fbf-5532-aa06-306729d69368",
    ),
    (
        {"shifts": ["identity"]},
        "a-identity-seed0-ccfe65edd3",
        "d1a38e79-6878-50da-a52c-50f5e05085a1",
    ),
    (
        {"shifts": [{"registered": {"name": "fog", "parameters": {}}}]},
        "a-fog-seed0-cf46edf032",
        "62cf4e77-ab08-5c17-a72d-bcbaf0ba960b",
    ),
    (
        {"shifts": [{"registered": {"name": "fog", "parameters": {"severity": 1}}}]},
        "a-fog-severity-1-seed0-9b8785bd09",
        "4fe33c63-5991-5a58-82c5-0cd6f4f0df01",
    ),
    (
        {"shifts": [{"brightness": [-1]}]},
        "a-brightness--1-seed0-94bcddc862",
        "82b7849b-f30b-51f0-9214-58b59ae492fa",
    ),
    (
        {"shifts": [{"jpeg": [10]}]},
        "a-jpeg-10-seed0-1c9f7a1e05",
        "1e481222-33f2-57a1-bc4d-ab6fe8461360",
    ),
]
# Written by the same build.
PLAN: dict[str, Any] = {
    "format": 1,
    "name": "mine",
    "description": "",
    "sweep": {
        "name": "mine",
        "checkpoints": ["a"],
        "anchors": {"dataset": "rooms.h5", "task": "tworoom"},
        "shifts": ["gaussian_noise:0.08"],
        "protocol": {"draws": 5, "horizon": 8, "quantile": 0.9, "margin": 0.1},
    },
    "cells": [
        {
            "id": "a-gaussian_noise-0.08-seed0-a324fb467a",
            "checkpoint": {"name": "a", "weights": "weights.pt", "digest": ""},
            "reference": None,
            "anchors": {
                "dataset": "rooms.h5",
                "task": "tworoom",
                "count": None,
                "seed": None,
                "frameskip": None,
                "one_per_episode": None,
            },
            "shift": {"kind": "gaussian_noise", "sigma": 0.08},
            "protocol": {
                "draws": 5,
                "seed": 0,
                "horizon": 8,
                "quantile": 0.9,
                "margin": 0.1,
                "weights": [],
                "extra_horizons": [],
                "extra_quantiles": [],
            },
            "thresholds": {"ir": None, "sr": None},
            "numeric_mode": "server_default",
            "labels": {},
        }
    ],
}


def cell_of(sweep: Sweep) -> Cell:
    listed = [
        Checkpoint(name, "weights.pt", CheckpointState.AVAILABLE, 1, None, False) for name in "ab"
    ]
    plan = make_plan(sweep.spec, listed, lambda anchors: anchors.dataset or anchors.digest)
    kept = json.loads(json.dumps(plan.to_document()))
    assert Plan.from_document(kept) == plan
    (cell,) = Plan.from_document(kept).cells
    return cell


@pytest.mark.parametrize(("said", "id", "request_id"), IDS, ids=[str(item[0]) for item in IDS])
def test_ids_follow_from_what_the_file_says(
    said: dict[str, Any], id: str, request_id: str, sweep_of: Make
) -> None:
    cell = cell_of(sweep_of(**{"shifts": SHIFTS, **said}))
    assert (cell.id, cell.request_id("mine", 1)) == (id, request_id)


@pytest.mark.parametrize(
    ("said", "request_id"),
    [
        ({}, "dad97b9b-38ef-5b82-b316-dd72117979ff"),
        ({"seed": 9101}, "3a5f7c60-2af1-52cf-ac07-76fe603f292e"),
        ({"seed": 3}, "e8bd8e1d-d20e-51eb-93ab-026a417d5304"),
    ],
)
def test_a_dataset_is_frozen_by_the_same_job(
    said: dict[str, int], request_id: str, client: AcpcClient, tmp_path: Path
) -> None:
    document = {"dataset": "rooms.h5", "task": "tworoom", "freeze": True, **said}
    anchors = read_anchors(Node(document))
    assert anchors.dataset is not None
    depot = Depot(client, Link(client), "mine", tmp_path, horizon=8)
    assert depot.request_id(anchors, anchors.dataset) == request_id


def test_a_default_that_is_stated_is_measured_like_one_that_is_not(sweep_of: Make) -> None:
    stated = cell_of(sweep_of(shifts=SHIFTS, protocol={"draws": 5}, thresholds={"ir": 0.3}))
    assert (stated.protocol, stated.thresholds) == (ScoreProtocol(), Thresholds())
    assert stated.stated == {"protocol.draws", "protocol.seed", "thresholds.ir"}


def test_what_an_old_plan_leaves_open_has_the_papers_value(tmp_path: Path) -> None:
    left_open = {**PLAN["cells"][0], "protocol": dict.fromkeys(PLAN["cells"][0]["protocol"])}
    folder = tmp_path / "mine.sweep"
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps({**PLAN, "cells": [left_open]}))
    plan = SweepFolder(folder).read_plan()
    assert plan is not None
    assert plan.cells[0].protocol == ScoreProtocol()
    page = render(from_sweep(folder))
    assert "seed 9101" in page
    assert "None" not in page
