"""The steps of a checkpoint job, from acceptance to verdict."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

import torch

from acpc_server.data import Anchors, DatasetStore
from acpc_server.diagnostics import score
from acpc_server.diagnostics.job_kind import Json, Step
from acpc_server.diagnostics.plan import Role, ScorePlan
from acpc_server.diagnostics.shard import ShardRecord, ShardScorer
from acpc_server.engine import CheckpointCache, DeviceEngine, LoadedCheckpoint, Ticket
from acpc_server.errors import FailedPrecondition, InvalidArgument
from acpc_server.models import ModelCard, check_actions
from acpc_server.perturb import perturb_frames

# Anchor batches kept in memory: jobs of a sweep follow each other on the same anchors.
CACHED_BATCHES = 2


class CheckpointScoring:
    """The kind of job that measures a checkpoint.

    Args:
        engine: Owner of the device.
        checkpoints: Loaded checkpoints.
        datasets: Datasets the server can see.
    """

    name = "score_checkpoint"
    plan_type = ScorePlan

    def __init__(
        self, engine: DeviceEngine, checkpoints: CheckpointCache, datasets: DatasetStore
    ) -> None:
        self._engine = engine
        self._checkpoints = checkpoints
        self._datasets = datasets
        self._batches: OrderedDict[str, Anchors] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, plan: ScorePlan) -> None:
        """Refuse a plan that cannot work, before it is queued.

        Raises:
            InvalidArgument: A field does not fit the checkpoints, the dataset or the task.
            NotFound, FailedPrecondition: The dataset or the task cannot be used.
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
        try:
            self._check_dataset(plan, card)
        except InvalidArgument as error:
            raise error.below("dataset") from error

    def _check_shift(self, plan: ScorePlan, card: ModelCard) -> None:
        frames = torch.zeros(1, 3, card.image_size, card.image_size)
        try:
            perturb_frames(frames, plan.perturbation, seed=0, anchor=0, draw=0)
        except InvalidArgument as error:
            raise error.below(f"perturbation.{plan.perturbation.kind}") from error

    def _check_dataset(self, plan: ScorePlan, card: ModelCard) -> None:
        source, steps = plan.anchors, card.history + plan.protocol.horizon
        fit = self._datasets.fit(
            source.dataset, source.task, steps=steps, frameskip=source.frameskip
        )
        check_actions(card, frameskip=fit.frameskip, action_dim=fit.action_dim)
        if fit.windows < source.count:
            raise InvalidArgument(
                "count",
                f"{source.count} anchors asked for, but {source.dataset} has only {fit.windows} "
                f"windows of {card.history} + {plan.protocol.horizon} frames",
            )

    def stamp(self, plan: ScorePlan) -> str:
        """Changes when the plan's dataset or task file is replaced or written to.

        Raises:
            InvalidArgument, NotFound, PermissionDenied, FailedPrecondition: They cannot be found.
        """
        return self._datasets.stamp(plan.anchors.dataset, plan.anchors.task)

    def count_steps(self, plan: ScorePlan) -> int:
        """One step to read the anchors, one per shard, one summary per checkpoint."""
        return 1 + len(plan.roles()) * (len(plan.shards()) + 1)

    def run(self, plan: ScorePlan, stamp: str, step: Step, ticket: Ticket) -> Json:
        """Every step of a job, in order; see :class:`~acpc_server.diagnostics.JobKind`.

        Raises:
            FailedPrecondition: The dataset is no longer the one the job was accepted with.
        """
        opened = step("reading anchors", lambda: self.open(plan, stamp))
        scores: dict[Role, Json] = {}
        for role in plan.roles():
            shards = [
                step(
                    f"measuring the {role}",
                    partial(self.shard, plan, opened, role, start, stop, ticket),
                )
                for start, stop in plan.shards()
            ]
            scores[role] = step(
                f"separating states of the {role}",
                partial(self.summarise, plan, opened, role, shards, ticket),
            )
        return self.conclude(plan, opened, scores)

    def open(self, plan: ScorePlan, stamp: str) -> Json:
        """First step: read the anchors and pin down what they are.

        Raises:
            FailedPrecondition: The dataset's stamp is not the one it had at submission.
        """
        if self.stamp(plan) != stamp:
            raise _dataset_changed(plan, "queued")
        return {"anchors_digest": self._anchors(plan).digest}

    def shard(
        self, plan: ScorePlan, opened: Json, role: Role, start: int, stop: int, ticket: Ticket
    ) -> Json:
        """One shard of one checkpoint."""
        anchors = self._same_anchors(plan, opened)
        model = self._loaded(plan, role).model
        record = ShardScorer(self._engine, model, anchors, plan).score(start, stop, ticket)
        return record.to_json()

    def summarise(
        self, plan: ScorePlan, opened: Json, role: Role, shards: list[Json], ticket: Ticket
    ) -> Json:
        """Raw IR, SR and per-anchor values of one checkpoint."""
        anchors = self._same_anchors(plan, opened)
        record = ShardRecord.concatenate([ShardRecord.from_json(shard) for shard in shards])
        distances, partner = score.different_state_distances(
            self._engine, self._loaded(plan, role).model, anchors, plan, record, ticket
        )
        summary = score.summarise_checkpoint(plan, record, distances, partner)
        return {**summary, "anchor_ids": anchors.anchor_ids.tolist()}

    def conclude(self, plan: ScorePlan, opened: Json, scores: Mapping[Role, Json]) -> Json:
        """The result of the job: scores, verdict and receipt. Holds no time."""
        receipt = score.score_receipt(plan, opened["anchors_digest"], self._engine.device)
        reference = scores.get("reference", scores["checkpoint"]) if plan.reference else None
        return {
            "checkpoint": scores["checkpoint"],
            "reference": reference,
            "verdict": asdict(score.judge(plan, dict(scores))),
            "receipt": asdict(receipt),
        }

    def _loaded(self, plan: ScorePlan, role: Role) -> LoadedCheckpoint:
        named = plan.named(role)
        return self._checkpoints.get(named.name, named.weights, named.digest)

    def _same_anchors(self, plan: ScorePlan, opened: Json) -> Anchors:
        anchors = self._anchors(plan)
        if anchors.digest != opened["anchors_digest"]:
            raise _dataset_changed(plan, "running")
        return anchors

    def _anchors(self, plan: ScorePlan) -> Anchors:
        history = self._loaded(plan, "checkpoint").model.card.history
        source = plan.anchors
        with self._lock:
            key = f"{source.model_dump_json()}:{self.stamp(plan)}:{history}:{plan.protocol.horizon}"
            if key not in self._batches:
                self._batches[key] = self._datasets.anchors(
                    source.dataset,
                    source.task,
                    history=history,
                    horizon=plan.protocol.horizon,
                    count=source.count,
                    seed=source.seed,
                    frameskip=source.frameskip,
                )
            self._batches.move_to_end(key)
            while len(self._batches) > CACHED_BATCHES:
                self._batches.popitem(last=False)
            return self._batches[key]


def _dataset_changed(plan: ScorePlan, state: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"dataset {plan.anchors.dataset!r} or its task file changed while the job was {state}; "
        "submit the job again",
        reason="DATASET_CHANGED",
    )
