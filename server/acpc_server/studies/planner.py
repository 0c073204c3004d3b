"""Rows of the planner study; App. "Adaptive-CEM Selection-Regret Protocol" in the paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from acpc.contract import PairedPlans, PlannerMoment, PlannerStudy

from acpc_server.encoding import EncodedHistories, View, check_predictions, distinct_views
from acpc_server.interactive import RETURNS, Moment, PairedCem
from acpc_server.scheduling import RequestContext
from acpc_server.studies.measurement import Bench, Measurement, Table, view_columns
from acpc_server.studies.spec import goal_offset, views_of


class PlannerMeasurement(Measurement[PlannerStudy]):
    """Paired CEM runs of every anchor, on latents encoded for the job alone."""

    def __init__(self, bench: Bench, study: PlannerStudy) -> None:
        super().__init__(bench, study)
        # Equal views would repeat their runs.
        self._plan = views_of(study)
        self._views = distinct_views(self._plan)

    def measure(self, start: int, stop: int, context: RequestContext) -> Table:
        """Rows of anchors [start, stop), anchor-major."""
        bench, study = self._bench, self._study
        encoder = bench.encoder(study.history, (goal_offset(study) - 1,), self._plan)
        latents = encoder.encode(start, stop, context)
        check_predictions(latents.clean, latents.views)
        now = bench.anchors.history
        frames = bench.anchors.read_frames(start, stop)[:, now - study.history : now]
        parts = []
        for row in range(stop - start):
            encoded = EncodedHistories(
                latents.clean[row, : study.history], latents.views[row], latents.clean[row, -1:]
            )
            plans = self._run(start + row, frames[row], encoded, context)
            parts.append(self._rows(start + row, plans))
        return Table.join(parts)

    def _run(
        self, anchor: int, history: np.ndarray, latents: EncodedHistories, context: RequestContext
    ) -> PairedPlans:
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
        return PairedCem(
            moment.with_latents(latents), study.budget, seed, RETURNS[study.returns]
        ).run(context)

    def _rows(self, anchor: int, answer: PairedPlans) -> Table:
        # A deterministic shift has one draw; the answer repeats it.
        plans = [p for p in answer.views if View(p.spec_index, p.draw) in self._views]
        gaps = np.array([gaps.top1 for gaps in answer.clean_gaps])
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
        return Table(columns, arrays)
