"""What the blocking client asks about a planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acpc.contract import CemReturn, CostReduction, NumericMode
from numpy.typing import NDArray

from acpc_client.calls import diagnostics, planning
from acpc_client.inputs import CemBudget, CheckpointRef
from acpc_client.perturbations import Perturbation
from acpc_client.results import PairedPlans, PoolCertificate
from acpc_client.sync.base import SyncBase
from acpc_client.sync.session import PlanSession


class PlanningMethods(SyncBase):
    """Certificates for candidate pools, and for whole CEM runs."""

    def certify_pool(
        self,
        checkpoint: str | CheckpointRef,
        history: NDArray[Any],
        candidates: NDArray[Any],
        goal: NDArray[Any],
        *,
        past_blocks: NDArray[Any] | None = None,
        perturbations: Perturbation | Sequence[Perturbation] = (),
        views: NDArray[Any] | None = None,
        draws: int = 1,
        seed: int = 0,
        anchor: int = 0,
        elite_count: int = 0,
        cost_reduction: CostReduction = CostReduction.SERVER_DEFAULT,
        endpoint_tolerance: float = 0.0,
        weights: Sequence[float] = (),
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> PoolCertificate:
        """Can this visual change alter the planner's choice among these candidates?

        Args:
            checkpoint: Name below the server's root, or a ref.
            history: Clean frames, uint8 (h, height, width, 3).
            candidates: Action sequences, float32 (candidates, H, block width).
            goal: uint8 (height, width, 3), or float32 (latent width,) in the projected space.
            past_blocks: Blocks that leave the earlier frames, float32 (h - 1, block width).
            perturbations: The changes the server makes; either these or ``views``.
            views: Views of your own, uint8 (views, h, height, width, 3).
            draws: Draws per perturbation.
            seed: Seed of the draws.
            anchor: Identity of the history among those that share the seed.
            elite_count: Size k of the elite set; zero: no elite certificate.
            cost_reduction: How the squared distance is reduced over latent coordinates.
            endpoint_tolerance: l2 distance by which every endpoint may be off.
            weights: Horizon weights of the ACPC summaries; empty: 1/H.
            numeric_mode: Arithmetic of the network.
            request_id: Kept over retries; a fresh uuid4 when None.
            timeout: Seconds for the whole call; None: 30.

        Raises:
            ArgumentError: An array or a number cannot be sent as it is.
            AcpcError: What the server refused, or could not do.
        """
        call = diagnostics.certify_pool(
            checkpoint,
            history,
            candidates,
            goal,
            past_blocks=past_blocks,
            perturbations=perturbations,
            views=views,
            draws=draws,
            seed=seed,
            anchor=anchor,
            elite_count=elite_count,
            cost_reduction=cost_reduction,
            endpoint_tolerance=endpoint_tolerance,
            weights=weights,
            numeric_mode=numeric_mode,
            request_id=request_id,
        )
        return self._run(call, timeout)

    def plan(
        self,
        checkpoint: str | CheckpointRef,
        history: NDArray[Any],
        goal: NDArray[Any],
        *,
        past_blocks: NDArray[Any] | None = None,
        perturbations: Perturbation | Sequence[Perturbation] = (),
        views: NDArray[Any] | None = None,
        draws: int = 1,
        seed: int = 0,
        anchor: int = 0,
        elite_count: int = 0,
        cost_reduction: CostReduction = CostReduction.SERVER_DEFAULT,
        endpoint_tolerance: float = 0.0,
        weights: Sequence[float] = (),
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        request_id: str | None = None,
        timeout: float | None = None,
        message_timeout: float | None = None,
    ) -> PlanSession:
        """A session that certifies one pool after another, as a planner makes them.

        History, goal and views travel once, when the session is entered, and are encoded once.
        Without an answer to that the call is tried again; a session that breaks later is not.

        Args:
            checkpoint: Name below the server's root, or a ref.
            history: Clean frames, uint8 (h, height, width, 3).
            goal: uint8 (height, width, 3), or float32 (latent width,) in the projected space.
            past_blocks: Blocks that leave the earlier frames, float32 (h - 1, block width).
            perturbations: The changes the server makes; either these or ``views``.
            views: Views of your own, uint8 (views, h, height, width, 3).
            draws: Draws per perturbation.
            seed: Seed of the draws.
            anchor: Identity of the history among those that share the seed.
            elite_count: Size k of the elite set; zero: no elite certificates.
            cost_reduction: How the squared distance is reduced over latent coordinates.
            endpoint_tolerance: l2 distance by which every endpoint may be off.
            weights: Horizon weights of the ACPC summaries; empty: 1/H.
            numeric_mode: Arithmetic of the network.
            request_id: Names the session; a fresh uuid4 when None.
            timeout: Seconds for the whole session; None: 600.
            message_timeout: Seconds for each answer; None: the client's timeout, or 30.

        Raises:
            ArgumentError: An array or a number cannot be sent as it is.

        Example:
            >>> with client.plan("lewm-pusht", history, goal, perturbations=noise) as session:
            ...     for _ in range(iterations):
            ...         pool = session.certify_proposal(mean, std, seed=next(seeds))
            ...         if not pool.certificate.views[0].top1.certified:
            ...             break
        """
        start = planning.start(
            checkpoint,
            history,
            goal,
            past_blocks=past_blocks,
            perturbations=perturbations,
            views=views,
            draws=draws,
            seed=seed,
            anchor=anchor,
            elite_count=elite_count,
            cost_reduction=cost_reduction,
            endpoint_tolerance=endpoint_tolerance,
            weights=weights,
            numeric_mode=numeric_mode,
            request_id=request_id,
        )
        return PlanSession(self, start, timeout, message_timeout)

    def plan_paired(
        self,
        checkpoint: str | CheckpointRef,
        history: NDArray[Any],
        goal: NDArray[Any],
        budget: CemBudget,
        *,
        past_blocks: NDArray[Any] | None = None,
        perturbations: Perturbation | Sequence[Perturbation] = (),
        views: NDArray[Any] | None = None,
        draws: int = 1,
        seed: int = 0,
        anchor: int = 0,
        sampling_seed: int = 0,
        returns: CemReturn = CemReturn.SERVER_DEFAULT,
        cost_reduction: CostReduction = CostReduction.SERVER_DEFAULT,
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> PairedPlans:
        """Would the planner have made the same plan from another view of its history?

        The server runs CEM from the clean history and from every view, with common random
        numbers, and certifies every iteration of the clean run.

        Args:
            checkpoint: Name below the server's root, or a ref.
            history: Clean frames, uint8 (h, height, width, 3).
            goal: uint8 (height, width, 3), or float32 (latent width,) in the projected space.
            budget: Size of both runs.
            past_blocks: Blocks that leave the earlier frames, float32 (h - 1, block width).
            perturbations: The changes the server makes; either these or ``views``.
            views: Views of your own, uint8 (views, h, height, width, 3).
            draws: Draws per perturbation.
            seed: Seed of the draws.
            anchor: Identity of the history among those that share the seed.
            sampling_seed: Seed of the common random numbers.
            returns: Which plan a run returns.
            cost_reduction: How the squared distance is reduced over latent coordinates.
            numeric_mode: Arithmetic of the network.
            request_id: Kept over retries; a fresh uuid4 when None.
            timeout: Seconds for the whole call; None: 300.

        Raises:
            ArgumentError: An array or a number cannot be sent as it is.
            AcpcError: What the server refused, or could not do.
        """
        call = planning.plan_paired(
            checkpoint,
            history,
            goal,
            budget,
            past_blocks=past_blocks,
            perturbations=perturbations,
            views=views,
            draws=draws,
            seed=seed,
            anchor=anchor,
            sampling_seed=sampling_seed,
            returns=returns,
            cost_reduction=cost_reduction,
            numeric_mode=numeric_mode,
            request_id=request_id,
        )
        return self._run(call, timeout)
