"""A CEM solver with the hook of stable-worldmodel's, whose own import needs simulators.

Written for the tests, not taken from the library: it calls its callbacks at the same points of
the loop (``reset``, per batch ``start_batch``, per iteration the call, ``end_solve``) with the same
keywords and tensor shapes, under ``torch.inference_mode`` as the library does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class PublicCem:
    """Minimises ``cost`` over action sequences.

    Args:
        cost: Costs (environments, candidates) of candidates (environments, candidates, H, width)
            for the environments that begin at an index.
        shape: H and block width.
        candidates: Pool size.
        topk: Elites k.
        n_steps: Iterations.
        batch_size: Environments at a time.
        callbacks: Hooks.
        dtype: Of the candidates, as the library takes it from the model's parameters.
    """

    def __init__(
        self,
        cost: Callable[[int, Tensor], Tensor],
        *,
        shape: tuple[int, int],
        candidates: int,
        topk: int,
        n_steps: int,
        batch_size: int = 1,
        callbacks: list[Any],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.cost = cost
        self.shape = shape
        self.candidates = candidates
        self.topk = topk
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.callbacks = callbacks
        self.dtype = dtype

    @torch.inference_mode()
    def solve(self, environments: int) -> dict[str, Any]:
        """Plans for every environment; the means and what the callbacks recorded."""
        generator = torch.Generator().manual_seed(1234)
        means = []
        for hook in self.callbacks:
            hook.reset()
        for first in range(0, environments, self.batch_size):
            size = min(self.batch_size, environments - first)
            mean = torch.zeros(size, *self.shape, dtype=self.dtype)
            var = torch.ones_like(mean)
            for hook in self.callbacks:
                hook.start_batch()
            for step in range(self.n_steps):
                noise = torch.randn(size, self.candidates, *self.shape, generator=generator)
                pool = mean[:, None] + var[:, None] * noise.to(self.dtype)
                pool[:, 0] = mean
                costs = self.cost(first, pool)
                values, indices = torch.topk(costs, self.topk, dim=1, largest=False)
                elites = pool[torch.arange(size)[:, None], indices]
                before = {"prev_mean": mean, "prev_var": var}
                mean, var = elites.mean(dim=1), elites.std(dim=1)
                for hook in self.callbacks:
                    hook(
                        step=step,
                        candidates=pool,
                        costs=costs,
                        topk_vals=values,
                        topk_inds=indices,
                        topk_candidates=elites,
                        mean=mean,
                        var=var,
                        **before,
                    )
            means.append(mean)
        for hook in self.callbacks:
            hook.end_solve()
        recorded = {hook.output_key: hook.history for hook in self.callbacks}
        return {"actions": torch.cat(means), "callbacks": recorded}
