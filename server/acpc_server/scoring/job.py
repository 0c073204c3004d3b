"""The steps of a checkpoint job, from acceptance to verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from acpc_server.data import Anchors
from acpc_server.encoding import AnchorReaders
from acpc_server.engine import CheckpointCache, DeviceEngine, LoadedCheckpoint
from acpc_server.errors import InvalidArgument
from acpc_server.jobs import Json, Step, pack, unpack
from acpc_server.models import ModelCard
from acpc_server.numerics import pairing, screening
from acpc_server.perturb import perturb_frames
from acpc_server.scheduling import RequestContext
from acpc_server.scoring import score
from acpc_server.scoring.plan import Role, ScorePlan
from acpc_server.scoring.preview import AnchorPreview, preview_anchors
from acpc_server.scoring.shard import ShardRecord, ShardScorer


class CheckpointScoring:
    """The kind of job that measures a checkpoint.

    Args:
        engine: Owner of the device.
        checkpoints: Loaded checkpoints.
        readers: Opens the anchors.
    """

    name = "score_checkpoint"
    plan_type = ScorePlan

    def __init__(
        self, engine: DeviceEngine, checkpoints: CheckpointCache, readers: AnchorReaders
    ) -> None:
        self._engine = engine
        self._checkpoints = checkpoints
        self._readers = readers

    def check(self, plan: ScorePlan) -> None:
        """Refuse a plan that cannot work, before it is queued.

        Raises:
            InvalidArgument: A field does not fit the checkpoints or the anchors.
            NotFound, FailedPrecondition: The dataset, the task or the set cannot be used.
        """
        plan.numeric_mode.require(self._engine.device)
        cards = {role: self._loaded(plan, role).model.card for role in plan.roles()}
        card = cards["checkpoint"]
        reference = cards.get("reference", card)
        for field in ("family", "history", "action_block_dim"):
            ours, theirs = getattr(card, field), getattr(reference, field)
            if ours != theirs:
                raise InvalidArgument(
                    "reference",
                    f"{field} is {theirs}, but the checkpoint's is {ours}; the reference must be "
                    "the unaugmented checkpoint of the same task, run and family",
                )
        self._check_shift(plan, card)
        self._readers.check(plan.anchors, card, history=card.history, horizon=plan.protocol.horizon)

    def _check_shift(self, plan: ScorePlan, card: ModelCard) -> None:
        frames = torch.zeros(1, 3, card.image_size, card.image_size)
        try:
            perturb_frames(frames, plan.perturbation, seed=0, anchor=0, draw=0)
        except InvalidArgument as error:
            raise error.below(f"perturbation.{plan.perturbation.kind}") from error

    def stamp(self, plan: ScorePlan) -> str:
        """Changes when the data the plan reads is replaced or written to.

        Raises:
            InvalidArgument, NotFound, PermissionDenied, FailedPrecondition: It cannot be found.
        """
        return self._readers.stamp(plan.anchors)

    def count_steps(self, plan: ScorePlan) -> int:
        """One step to read the anchors, one per shard, one summary per checkpoint."""
        return 1 + len(plan.roles()) * (len(plan.shards()) + 1)

    def run(self, plan: ScorePlan, stamp: str, step: Step, context: RequestContext) -> Json:
        """Every step of a job, in order; see :class:`~acpc_server.diagnostics.JobKind`.

        Raises:
            FailedPrecondition: The anchors are no longer those the job was accepted with.
        """
        opened = step("reading anchors", lambda: self.open(plan, stamp, context))
        scores: dict[Role, Json] = {}
        for role in plan.roles():
            records = [  # read at once: the record's text is a third longer than its numbers
                ShardRecord.from_json(
                    step(
                        f"measuring the {role}",
                        partial(self.shard, plan, opened, role, start, stop, context),
                    )
                )
                for start, stop in plan.shards()
            ]
            scores[role] = step(
                f"separating states of the {role}",
                partial(self.summarise, plan, opened, role, records, context),
            )
        return self.conclude(plan, opened, scores)

    def open(self, plan: ScorePlan, stamp: str, context: RequestContext) -> Json:
        """First step: pin down what the anchors are, and pair them.

        Raises:
            FailedPrecondition: The data is not what it was at submission, or no anchor has a
                partner, so that there is no SR to measure.
        """
        card = self._loaded(plan, "checkpoint").model.card
        anchors, identity = self._readers.open(
            plan.anchors,
            stamp,
            history=card.history,
            horizon=plan.protocol.horizon,
            check=context.check,
        )
        labels = torch.from_numpy(anchors.labels)
        states = torch.from_numpy(anchors.endpoint_states)
        pairs = pairing.pair_different_labels(states, labels, check=context.check)
        screening.check_eligible(pairs.eligible, anchors.count)
        return {
            "anchors": identity,
            "partner": pack(pairs.partner.numpy()),
            "skip_reasons": pack(pairs.skip_reasons(labels).numpy()),
            "seen": {"history": card.history, "image_size": card.image_size},
        }

    def shard(
        self,
        plan: ScorePlan,
        opened: Json,
        role: Role,
        start: int,
        stop: int,
        context: RequestContext,
    ) -> Json:
        """One shard of one checkpoint."""
        model = self._loaded(plan, role).model
        anchors = self._anchors(plan, opened, model.card)
        record = ShardScorer(self._engine, model, anchors, plan).score(start, stop, context)
        return record.to_json()

    def summarise(
        self,
        plan: ScorePlan,
        opened: Json,
        role: Role,
        shards: list[ShardRecord],
        context: RequestContext,
    ) -> Json:
        """Raw IR, SR and per-anchor values of one checkpoint."""
        model = self._loaded(plan, role).model
        anchors = self._anchors(plan, opened, model.card)
        record, partner = ShardRecord.concatenate(shards), unpack(opened["partner"])
        distances = score.different_state_distances(
            self._engine, model, anchors, plan, record, partner, context
        )
        return {
            **score.summarise_checkpoint(plan, record, distances, partner, context.check),
            "anchor_ids": pack(anchors.anchor_ids),
            "skip_reasons": opened["skip_reasons"],
        }

    def conclude(self, plan: ScorePlan, opened: Json, scores: Mapping[Role, Json]) -> Json:
        """The result of the job: scores, verdict and receipt. Holds no time."""
        receipt = score.score_receipt(plan, opened["anchors"]["digest"], self._engine.device)
        reference = scores.get("reference", scores["checkpoint"]) if plan.reference else None
        return {
            "checkpoint": scores["checkpoint"],
            "reference": reference,
            "verdict": asdict(score.judge(plan, dict(scores))),
            "receipt": asdict(receipt),
            "anchors": opened["anchors"],
            "seen": opened["seen"],
        }

    def preview(
        self, plan: ScorePlan, result: Mapping[str, Any], anchors: Sequence[int], draw: int
    ) -> list[AnchorPreview]:
        """What the model saw at some anchors of a job; as :func:`preview_anchors`."""
        return preview_anchors(self._readers, plan, result, anchors, draw)

    def _loaded(self, plan: ScorePlan, role: Role) -> LoadedCheckpoint:
        named = plan.named(role)
        return self._checkpoints.get(named.name, named.weights, named.digest)

    def _anchors(self, plan: ScorePlan, opened: Json, card: ModelCard) -> Anchors:
        return self._readers.reopen(
            plan.anchors,
            opened["anchors"],
            history=card.history,
            horizon=plan.protocol.horizon,
        )
