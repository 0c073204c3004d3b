"""The library's own policy drives an attached solver: histories, and environments that end."""

import sys
from collections import defaultdict
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from acpc_lab.integrations import CemCertificates
from cem_solvers import Sessions, rising
from gymnasium.spaces import Box
from public_library import public_module, public_solver

WIDTH, BLOCK, HORIZON = 2, 2, 3
World = SimpleNamespace(
    num_envs=3, action_space=Box(-10, 10, (3, WIDTH)), single_action_space=Box(-10, 10, (WIDTH,))
)


@pytest.fixture
def policies(release: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The library's policies; they import torchvision for a class that transforms alone need."""
    for name in ("torchvision", "torchvision.tv_tensors"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["torchvision"].tv_tensors = None
    return public_module("policy")


@pytest.mark.parametrize("kind", ["CEM", "ICEM"])
def test_a_policy_plans_for_those_that_go_on(
    kind: Literal["CEM", "ICEM"], release: str, policies: ModuleType, session: Sessions
) -> None:
    """Environment 1 ends after the first plan; its rows are asked for no more, nor others' as its.

    The newer sources give blocks that were executed between the frames of a history.
    """
    histories = release == "source"
    frames = 3 if histories else 1
    hook = CemCertificates(lambda env: session(env, kept_elites=2 * (kind == "ICEM")))
    solver = public_solver(
        rising, shape=(HORIZON, WIDTH), environments=3, kind=kind, num_samples=6, topk=2, n_steps=2
    )
    options = {"history_len": frames}
    config = policies.PlanConfig(horizon=HORIZON, receding_horizon=1, action_block=BLOCK, **options)
    policy = policies.WorldModelPolicy(hook.attach(solver), config)
    policy.set_env(World)
    seen: dict[int, list[Any]] = defaultdict(list)
    executed = np.zeros((3, WIDTH), np.float32)
    for step in range(5 * BLOCK):
        info = {
            "pixels": np.full((3, 1, 4), step) + 100 * np.arange(3)[:, None, None],
            "id": np.array([[40], [41], [42]]),
            "terminated": np.array([False, step > 0, False]),
            "action": executed[:, None],
        }
        executed = policy.get_action(info)
        assert np.isnan(executed[1]).all() == (step > 0)
        if step % BLOCK == 0:
            assert sorted(hook.iterations) == ([0, 1, 2] if step == 0 else [0, 2])
        for env, row in hook.rows.items():
            assert hook.certified(env)
            assert int(row["pixels"].flatten()[-1]) == step - step % BLOCK + 100 * env
            if step % BLOCK == 0 and "action_history" in row:
                seen[env].append(tuple(row["action_history"].shape))
    shapes = [(blocks, BLOCK * WIDTH) for blocks in (1, 2, 2, 2)] if frames > 1 else []
    assert dict(seen) == ({0: shapes, 2: shapes} if shapes else {})
