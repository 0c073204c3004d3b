"""Rows of the error-drift study; Sec. "ACPC and Prediction-Error Change" in the paper.

Groups of trajectories and destroyed actions depend on the seed and the anchors alone, never on how
a job is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from acpc.contract import DestroyedActions, DriftStudy, Identity, released_future_frames
from jaxtyping import Float32, Int64

from acpc_server.encoding import Bench, distinct_views
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.models import ModelCard
from acpc_server.numerics import consistency, keyed_generator
from acpc_server.studies.measurement import (
    Needs,
    StudyMeasurement,
    StudyTable,
    rollout_latents,
    view_columns,
    views_each,
)
from acpc_server.studies.spec import StudySpec, views_of

CONTROLS = ("acpc_zeroed", "acpc_swapped", "acpc_shuffled")
_DOMAIN = b"acpc/controls/1\0"


def trajectory_groups(trajectories: Int64[np.ndarray, "n"], groups: int) -> Int64[np.ndarray, "n"]:
    """The group, 0 to ``groups - 1``, of each anchor; a trajectory lies in one group alone.

    Trajectories are dealt to the groups in turn, in the order in which they first appear. Raises
    FailedPrecondition: Fewer trajectories than groups.
    """
    _, first, inverse = np.unique(trajectories, return_index=True, return_inverse=True)
    if len(first) < groups:
        raise FailedPrecondition(
            f"the anchors come from {len(first)} trajectories, too few for {groups} groups; ask "
            "for fewer groups or for anchors of more trajectories",
            reason="TOO_FEW_TRAJECTORIES",
        )
    appearance = np.argsort(np.argsort(first))  # rank of each trajectory
    group: np.ndarray = appearance[inverse] % groups
    return group


def swapped_partners(trajectories: Int64[np.ndarray, "n"], seed: int) -> Int64[np.ndarray, "n"]:
    """For each anchor the anchor of another trajectory whose actions it is given.

    A permutation: every anchor gives its actions once. Anchors lie in random order, those of a
    trajectory side by side, and each takes from the one that lies the largest trajectory's size
    further on. Raises FailedPrecondition: More than half of the anchors share a trajectory.
    """
    n = len(trajectories)
    _, inverse, sizes = np.unique(trajectories, return_inverse=True, return_counts=True)
    largest = int(sizes.max())
    if 2 * largest > n:
        raise FailedPrecondition(
            f"{largest} of {n} anchors come from one trajectory, so their actions cannot be "
            "swapped for those of others; use one_per_episode, or more trajectories",
            reason="TOO_FEW_TRAJECTORIES",
        )
    generator = keyed_generator(_DOMAIN, {"seed": seed}, "swap")
    anchors, order = generator.permutation(n), generator.permutation(len(sizes))
    anchors = anchors[np.argsort(order[inverse[anchors]], kind="stable")]
    partners = np.empty(n, np.int64)
    partners[anchors] = np.roll(anchors, -largest)
    return partners


def shuffled_order(horizon: int, *, seed: int, anchor: int) -> Int64[np.ndarray, "horizon"]:
    """An order of an anchor's own ``horizon >= 2`` action blocks that is not the recorded one."""
    generator = keyed_generator(_DOMAIN, {"seed": seed, "anchor": anchor}, "shuffle")
    recorded = np.arange(horizon)
    order = recorded
    while np.array_equal(order, recorded):
        order = generator.permutation(horizon)
    return order


def destroyed_actions(
    blocks: Float32[np.ndarray, "n steps width"],
    anchor_ids: Int64[np.ndarray, "n"],
    partners: Int64[np.ndarray, "n"],
    rows: range,
    *,
    horizon: int,
    seed: int,
) -> Float32[np.ndarray, "m 4 steps width"]:
    """Recorded, zeroed, swapped and shuffled action blocks of anchors ``rows``.

    Only a_0..a_{H-1}, the last H blocks, are destroyed; those that leave earlier history frames are
    part of the history. Zeroed blocks are zero where the checkpoint acts, after normalisation: a
    block of mean actions, which is what "every action set to zero" can mean for any anchors, stored
    sets included.
    """
    every = np.repeat(blocks[rows.start : rows.stop, None], 4, axis=1)  # (m, 4, steps, width)
    future = every[:, :, -horizon:]  # a view
    future[:, 1] = 0
    future[:, 2] = blocks[partners[rows.start : rows.stop], -horizon:]
    for row, anchor in enumerate(anchor_ids[rows.start : rows.stop]):
        order = shuffled_order(horizon, seed=seed, anchor=int(anchor))
        future[row, 3] = future[row, 0, order]
    return every


def destroyed_windows(
    blocks: Float32[np.ndarray, "n window width"], rows: range, *, steps: int, seed: int
) -> Float32[np.ndarray, "m 4 steps width"]:
    """The same four as the released code has them: of whole windows, ``steps`` blocks are fed.

    Past blocks are destroyed too. One generator gives the permutation of the anchors, whose actions
    each is swapped for, and then an order of the window's blocks for every anchor; either may leave
    some in place. (The released code draws them again for each severity.)
    """
    n, window = blocks.shape[:2]
    generator = torch.Generator().manual_seed(seed)
    partners = torch.randperm(n, generator=generator).numpy()
    orders = [torch.randperm(window, generator=generator).numpy() for _ in range(n)]
    own = blocks[rows.start : rows.stop]
    shuffled = [blocks[row, orders[row]] for row in rows]
    every = np.stack(
        [own, np.zeros_like(own), blocks[partners[rows.start : rows.stop]], np.stack(shuffled)],
        axis=1,
    )
    fed: np.ndarray = every[:, :, :steps]
    return fed


class DriftMeasurement(StudyMeasurement[DriftStudy]):
    """Encodes anchors, their views and their future, and rolls out under four action sequences."""

    def __init__(self, bench: Bench, study: DriftStudy) -> None:
        super().__init__(bench, study)
        h, self._weights = self._history, consistency.horizon_weights((), study.horizon)
        # The unchanged view comes last and takes part in everything.
        self._plan = replace(views_of(study), specs=(*study.shifts, Identity()))
        trajectories = bench.anchors.trajectory_ids
        self._groups = trajectory_groups(trajectories, study.groups)
        self._actions: Callable[[range], np.ndarray]
        if study.destroyed is DestroyedActions.WINDOW:
            blocks, steps = bench.window_blocks(h, study.horizon), h + study.horizon - 1
            self._actions = partial(destroyed_windows, blocks, steps=steps, seed=study.seed)
        else:
            partners, ids = swapped_partners(trajectories, study.seed), bench.anchors.anchor_ids
            given = bench.blocks(h, study.horizon), ids, partners
            self._actions = partial(
                destroyed_actions, *given, horizon=study.horizon, seed=study.seed
            )

    @classmethod
    def needs(cls, study: DriftStudy, card: ModelCard) -> Needs:
        """Whole windows are destroyed with the block that leaves their last frame.

        They have as many frames as the released code's windows. The result has fourteen columns a
        view, and the unchanged view's ACPC.
        """
        views, whole = views_each(study), study.destroyed is DestroyedActions.WINDOW
        return Needs(
            card.history,
            study.horizon,
            latents=rollout_latents(study, card),
            result_bytes=8 * (14 * views + 1),
            set_horizon=released_future_frames(study.horizon) + 1 if whole else 0,
        )

    @classmethod
    def check(cls, spec: StudySpec, card: ModelCard) -> None:
        """Groups need trajectories, of which there is one an anchor at most."""
        super().check(spec, card)
        study = spec.study
        assert isinstance(study, DriftStudy)  # noqa: S101 - its kind
        if spec.anchors.count < study.groups:
            raise InvalidArgument(
                "drift.groups",
                f"{study.groups} groups need as many trajectories, and {spec.anchors.count} "
                "anchors come from no more than one each; ask for fewer groups or for more anchors",
            )

    def measure(self, start: int, stop: int) -> StudyTable:
        """Rows of anchors [start, stop), anchor-major.

        Raises RuntimeError: A row breaks Prop. target-free-error-drift, or the unchanged view is
        changed: the code is wrong.
        """
        study, bench, h = self._study, self._bench, self._history
        future = range(study.horizon)
        latents = bench.encode(start, stop, history=h, future=future, views=self._plan)
        history, observed = latents.clean[:, :h], latents.clean[:, None, h:]
        histories = torch.cat([history[:, None], latents.views], dim=1)  # (n, 1 + views, h, dim)
        blocks = torch.from_numpy(self._actions(range(start, stop)))  # (n, 4, h + H - 1, width)
        # Each (n, 1 + views, H, dim): recorded actions, then destroyed ones.
        rolled = [self.rollout(histories, blocks[:, None, kind]) for kind in range(4)]
        steps = [consistency.step_distances(x[:, :1], x[:, 1:]) for x in rolled]  # (n, views, H)
        acpc, *controls = (consistency.acpc(x, self._weights) for x in steps)  # (n, views)
        errors = consistency.prediction_error(rolled[0], observed, self._weights)
        clean_error, perturbed_error = errors[:, :1].expand_as(acpc), errors[:, 1:]
        drift = consistency.error_drift(clean_error, perturbed_error)
        if acpc[:, -1].any():
            raise RuntimeError(
                f"the unchanged view has an ACPC of up to {float(acpc[:, -1].max())}, not zero"
            )
        bound = consistency.drift_bound(
            acpc,
            clean_error,
            perturbed_error,
            horizon=study.horizon,
            dim=bench.model.card.latent_dim,
        )
        if bool((drift > bound).any()):
            raise RuntimeError("an error drift exceeds ACPC, against Prop. target-free-error-drift")
        measured = {
            "encoder_shift": consistency.encoder_shift(history[:, None], latents.views),
            "acpc_one_step": steps[0][..., 0],
            "acpc": acpc,
            **dict(zip(CONTROLS, controls, strict=True)),
            "clean_error": clean_error,
            "perturbed_error": perturbed_error,
            "drift": drift,
        }
        ids = bench.anchors.anchor_ids[start:stop]
        views = distinct_views(self._plan)[:-1]
        named = view_columns(ids, self._plan, views)
        columns = {
            "anchor": named.pop("anchor"),
            "group": np.repeat(self._groups[start:stop], len(views)),
            **named,
            **{name: values[:, :-1].flatten().numpy() for name, values in measured.items()},
        }
        return StudyTable(columns, {"identity_acpc": acpc[:, -1].numpy()})
