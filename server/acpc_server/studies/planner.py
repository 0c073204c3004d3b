"""Rows of the planner study; App. "Adaptive-CEM Selection-Regret Protocol" in the paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from acpc.contract import CostReduction, NumericMode, PairedPlans, PlannerMoment, PlannerStudy
from torch import Tensor

from acpc_server.encoding import Bench, EncodedHistories, View, check_predictions, distinct_views
from acpc_server.errors import below
from acpc_server.interactive import RETURNS, Moment, PairedCem
from acpc_server.models import ModelCard, Widens, check_history
from acpc_server.numerics import cost_bounds
from acpc_server.studies.measurement import (
    Needs,
    StudyMeasurement,
    StudyTable,
    view_columns,
    views_each,
)
from acpc_server.studies.spec import StudySpec, goal_offset, views_of


class PlannerMeasurement(StudyMeasurement[PlannerStudy]):
    """Paired CEM runs of every anchor, on latents encoded for the job alone."""

    def __init__(self, bench: Bench, study: PlannerStudy) -> None:
        super().__init__(bench, study)
        # Equal views would repeat their runs.
        self._plan = views_of(study)
        self._views = distinct_views(self._plan)

    @classmethod
    def needs(cls, study: PlannerStudy, card: ModelCard) -> Needs:
        """Its window is the study's history and the steps to its goal.

        Plans are predicted apart, in pieces. The result has 17 columns a view, and four arrays over
        iterations.
        """
        views = views_each(study)
        held = (1 + views) * (card.history + 1)
        written = 8 * (17 + 4 * study.budget.iterations) * views
        return Needs(study.history, goal_offset(study), held, written)

    @classmethod
    def check(cls, spec: StudySpec, card: ModelCard) -> None:
        """Refuse a checkpoint that takes less history than the study wants."""
        super().check(spec, card)
        assert isinstance(spec.study, PlannerStudy)  # noqa: S101 - its kind
        with below("planner"):
            check_history(card, spec.study.history)

    def measure(self, start: int, stop: int) -> StudyTable:
        """Rows of anchors [start, stop), anchor-major."""
        bench, study = self._bench, self._study
        history, goal = study.history, (goal_offset(study) - 1,)
        latents = bench.encode(start, stop, history=history, future=goal, views=self._plan)
        check_predictions(latents.clean, latents.views)
        now, wide = bench.anchors.history, latents.clean
        if self._widens:
            exact = replace(bench, mode=NumericMode.FP64)
            wide = exact.encode(start, stop, history=history, future=goal).clean
        parts = []
        for row in range(stop - start):
            encoded = EncodedHistories(
                latents.clean[row, : study.history], latents.views[row], latents.clean[row, -1:]
            )
            frames = bench.anchors.read_frames(start + row, start + row + 1)[0]
            cem = self._cem(start + row, frames[now - study.history : now].copy(), encoded)
            plans = cem.run(bench.context)
            # 0 where a pool is a single choice, to which the gap tends as a run converges.
            gaps = np.array([gaps.top1 if gaps.top1 < np.inf else 0.0 for gaps in plans.clean_gaps])
            if self._widens:
                gaps = self._exact_gaps(start + row, cem.leaders, wide[row])
            parts.append(self._rows(start + row, plans, gaps))
        return StudyTable.join(parts)

    @property
    def _widens(self) -> bool:
        return isinstance(self._bench.model, Widens)

    def _exact_gaps(self, anchor: int, leaders: list[Tensor], latents: Tensor) -> np.ndarray:
        """Gaps of the clean pools in float64, where float32 leaves a small one few digits.

        Of the ``leaders`` of each pool, the choices whose costs are lowest in float32.
        """
        study, pools = self._study, torch.stack(leaders)  # (pools, leaders, H, block width)
        past = torch.from_numpy(self._bench.blocks(study.history, 0)[anchor])
        blocks = torch.cat([past.expand(*pools.shape[:2], -1, -1), pools], dim=2)
        bench = replace(self._bench, mode=NumericMode.FP64)
        rolled = bench.rollout(latents[: study.history], blocks)
        check_predictions(rolled)
        mean = study.cost_reduction is CostReduction.MEAN
        costs = cost_bounds.goal_costs(
            rolled[:, :, -1], latents[-1], reduction="mean" if mean else "sum"
        )
        ordered = costs.sort().values.numpy()
        gaps: np.ndarray = ordered[:, 1] - ordered[:, 0]
        return gaps

    def _cem(self, anchor: int, history: np.ndarray, latents: EncodedHistories) -> PairedCem:
        bench, study = self._bench, self._study
        identity = int(bench.anchors.anchor_ids[anchor])
        request = PlannerMoment(
            checkpoint=bench.checkpoint.pinned(),
            history=history,
            past_blocks=bench.blocks(study.history, 0)[anchor],  # (h - 1, block width)
            goal=latents.extra[0].numpy(),
            views=replace(self._plan, anchor=identity),
            cost_reduction=study.cost_reduction,
            numeric_mode=bench.mode,
        )
        moment = Moment(engine=bench.engine, checkpoint=bench.checkpoint, request=request)
        seed = (study.sampling_seed + identity) % 2**64
        return PairedCem(moment.with_latents(latents), study.budget, seed, RETURNS[study.returns])

    def _rows(self, anchor: int, answer: PairedPlans, gaps: np.ndarray) -> StudyTable:
        # A deterministic shift has one draw; the answer repeats it.
        plans = [p for p in answer.views if View(p.spec_index, p.draw) in self._views]
        summaries = ("acpc_one_step_q90", "acpc_q90", "displacement_q90")
        arrays = {
            **{
                f"pool_{name}": np.array(
                    [[getattr(t, name) for t in p.iterations] for p in plans], np.float64
                )
                for name in summaries
            },
            "pool_clean_gap": np.tile(gaps, (len(plans), 1)),
        }
        of_pool = {name.removeprefix("pool_"): values for name, values in arrays.items()}
        ids = self._bench.anchors.anchor_ids[anchor : anchor + 1]
        divergence = [-1 if p.first_divergence is None else p.first_divergence for p in plans]
        budget = self._study.budget
        violations = [sum(t.bound_violations or 0 for t in p.iterations) for p in plans]
        columns = {
            **view_columns(ids, self._plan, self._views),
            **{name: values[:, -1] for name, values in of_pool.items()},
            "selection_regret": np.array([p.selection_regret for p in plans], np.float64),
            "first_divergence": np.array(divergence, np.int64),
            "certified": np.array([p.certified for p in plans], np.bool_),
            **{f"first_{name}": values[:, 0] for name, values in of_pool.items()},
            "candidate_pairs": np.full(len(plans), budget.candidates * budget.iterations, np.int64),
            "bound_violations": np.array(violations, np.int64),
        }
        return StudyTable(columns, arrays)
