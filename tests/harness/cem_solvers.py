"""Solvers of the public library with a hook, and what a policy gives them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from acpc.contract import GaussianNoise
from acpc_client.sync.client import AcpcClient
from acpc_client.sync.session import PlanSession
from acpc_lab.integrations import CemCertificates
from client_counterparty import Counterparty
from client_fixtures import HISTORY
from public_library import public_solver


@dataclass
class Sessions:
    """Sessions at a scripted server, whose seed tells the environment."""

    client: AcpcClient
    server: Counterparty

    def __call__(self, env: int, **options: int) -> PlanSession:
        goal, options = np.zeros(6, np.float32), {"elite_count": 2, **options}
        return self.client.plan(
            "a", HISTORY[:1], goal, perturbations=GaussianNoise(0.08), seed=env, **options
        )


def rising(info: dict[str, Any], pool: torch.Tensor) -> torch.Tensor:
    return torch.arange(float(pool.shape[1]), dtype=pool.dtype).repeat(pool.shape[0], 1)


def solver(hook: CemCertificates, cost: Any = rising, **options: Any) -> Any:
    given = {"shape": (3, 2), "num_samples": 6, "topk": 2, "n_steps": 3, **options}
    return public_solver(cost, callbacks=[hook], **given)


def rows(environments: int) -> dict[str, Any]:
    """What a policy gives a solver: of each environment its frame, and whose episode it is."""
    return {"pixels": torch.zeros(environments, 1), "id": np.arange(environments)[:, None] + 40}


def only(info: dict[str, Any], kept: list[int]) -> dict[str, Any]:
    """What a policy gives for the environments that it replans."""
    return {key: value[kept] for key, value in info.items()}
