"""The kind of job that scores a checkpoint: its steps from acceptance to verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from acpc.contract import (
    Evidence,
    EvidenceOptions,
    GivenViews,
    Score,
    ScoreMetadata,
    from_plain,
    to_plain,
)

from acpc_server.data import Anchors
from acpc_server.encoding import (
    SHARD_ANCHORS,
    AnchorJobKind,
    AnchorSetSource,
    check_latents,
    receipt_to_json,
)
from acpc_server.engine import require_mode
from acpc_server.errors import InvalidArgument
from acpc_server.evidence import Seen, take_look
from acpc_server.jobs import Json, Step, pack, unpack
from acpc_server.models import FrozenWorldModel, ModelCard
from acpc_server.numerics import Check, go_on, pairing, screening
from acpc_server.perturb import perturb_frames
from acpc_server.scheduling import RequestContext
from acpc_server.scoring import score
from acpc_server.scoring.shard import ShardRecord, latents_held, score_shard
from acpc_server.scoring.spec import Role, ScoreSpec

Shards: TypeAlias = dict[tuple[int, int], ShardRecord]
"""The shards of one checkpoint by their rows, in order."""


class ScoreJobKind(AnchorJobKind):
    """Measures IR and SR of a checkpoint and its reference, and judges them."""

    name = "score_checkpoint"
    spec_type = ScoreSpec

    def check(self, spec: ScoreSpec, tenant: str = "") -> None:
        """Reject a spec of a tenant that cannot work, before it is queued."""
        models = {role: self.loaded(spec.named(role)).model for role in spec.roles()}
        for model in models.values():
            require_mode(spec.numeric_mode, self.engine.device, model)
        cards = {role: model.card for role, model in models.items()}
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
        wanted = spec.thresholds.family
        if wanted and wanted.casefold() != card.family.casefold():
            raise InvalidArgument(
                "thresholds.family",
                f"is {wanted}, but the checkpoint's is {card.family}; give thresholds that were "
                "chosen for its family",
            )
        frames = torch.zeros(1, 3, card.image_size, card.image_size)
        try:
            if not isinstance(spec.perturbation, GivenViews):
                perturb_frames(frames, spec.perturbation, seed=0, anchor=0, draw=0)
        except InvalidArgument as error:
            raise error.below(f"perturbation.{spec.perturbation.kind}") from error
        for model in models.values():
            self._check_latents(spec, model)
        readers = self.readers.of(tenant)
        readers.check(spec.anchors, card, history=card.history, horizon=spec.protocol.horizon)

    def _check_latents(self, spec: ScoreSpec, model: FrozenWorldModel) -> None:
        """Reject more than one anchor, and the endpoints of all of them, may hold."""
        source = "anchor_set" if isinstance(spec.anchors, AnchorSetSource) else "dataset.count"
        asked = (
            (latents_held(model.card, spec), "protocol.draws", "the views of one anchor"),
            (spec.anchors.count, source, "the endpoints of all anchors"),
        )
        for count, field, what in asked:
            check_latents(self.engine, model, spec.numeric_mode, count, field, what)

    def count_steps(self, spec: ScoreSpec) -> int:
        """One step to read the anchors, one per shard, one summary per checkpoint.

        Of a job that stops when it is decided as many as it takes at most: at each look one to
        read, one per shard that is new, and one to judge.
        """
        roles, looks = len(spec.roles()), spec.looks()
        if not looks:
            return 1 + roles * (len(spec.shards()) + 1)
        # A shard that was cut off by the look before is new.
        fresh = sum(
            math.ceil(now / SHARD_ANCHORS) - before // SHARD_ANCHORS
            for before, now in pairwise([0, *looks])
        )
        return 2 * len(looks) + roles * (fresh + 1)

    def run(self, spec: ScoreSpec, stamp: str, step: Step, context: RequestContext) -> Json:
        """Every step of a job, in order; see :class:`~acpc_server.jobs.JobKind`."""
        if spec.looks():
            return self._until_decided(spec, stamp, step, context)
        opened = step("reading anchors", lambda: self.open(spec, stamp, context))
        scores: dict[Role, Json] = {}
        for role in spec.roles():
            shards = self._measured(spec, opened, role, {}, step, context)
            scores[role] = self._separated(spec, opened, role, shards, step, context)
        return self.conclude(spec, opened, scores, check=context.check)

    def _until_decided(
        self, spec: ScoreSpec, stamp: str, step: Step, context: RequestContext
    ) -> Json:
        """The steps of a job that looks after every batch; each look is the job of that size."""
        opened: Json | None = None
        shards: dict[Role, Shards] = {role: {} for role in spec.roles()}
        seen: list[Seen] = []
        for count in spec.looks():
            part, before, last = spec.first(count), opened, count == spec.anchors.count
            read = partial(self.open, part, stamp, context, before and before["anchors"], last)
            opened = step("reading anchors", read)
            for role in spec.roles():
                shards[role] = self._measured(part, opened, role, shards[role], step, context)
            look = partial(self.look, spec, opened, shards, seen, count, context)
            seen.append(from_plain(Seen, step(f"judging {count} anchors", look)))
            if seen[-1].decided:
                break
        assert opened is not None  # noqa: S101 - there is a look
        scores = {
            role: self._separated(part, opened, role, shards[role], step, context)
            for role in spec.roles()
        }
        return self.conclude(spec, opened, scores, seen, context.check)

    def _measured(
        self,
        spec: ScoreSpec,
        opened: Json,
        role: Role,
        known: Shards,
        step: Step,
        context: RequestContext,
    ) -> Shards:
        """Every shard of one checkpoint; a step for each that is not known."""
        fresh = [rows for rows in spec.shards() if rows not in known]
        measure = partial(self.shard, spec, opened, role, context=context)
        measured = step.each(f"measuring the {role}", measure, fresh)
        # Read at once: the record's text is a third longer than its numbers.
        shards = {**known, **dict(zip(fresh, map(ShardRecord.from_json, measured), strict=True))}
        return {rows: shards[rows] for rows in spec.shards()}

    def _separated(
        self,
        spec: ScoreSpec,
        opened: Json,
        role: Role,
        shards: Shards,
        step: Step,
        context: RequestContext,
    ) -> Json:
        summarise = partial(self.summarise, spec, opened, role, [*shards.values()], context)
        return step(f"separating states of the {role}", summarise)

    def open(
        self,
        spec: ScoreSpec,
        stamp: str,
        context: RequestContext,
        known: Json | None = None,
        last: bool = True,
    ) -> Json:
        """First step: pin down what the anchors are, and pair them.

        ``known`` is the identity of the first of them. Unless further ones come after the ``last``,
        some must be eligible.
        """
        card = self.loaded(spec.checkpoint).model.card
        anchors, identity = self.readers.of(context.tenant).open(
            spec.anchors,
            stamp,
            history=card.history,
            horizon=spec.protocol.horizon,
            check=context.check,
            known=known,
        )
        anchors = anchors.at_horizon(spec.protocol.horizon)
        labels = torch.from_numpy(anchors.labels)
        states = torch.from_numpy(anchors.endpoint_states)
        pairs = pairing.pair_different_labels(
            states, labels, spec.protocol.neighbourhood, check=context.check
        )
        if last:
            screening.check_eligible(pairs.eligible, anchors.count)
        return {
            "anchors": identity,
            "evaluated": anchors.digest,
            "partner": pack(pairs.partner.numpy()),
            "skip_reasons": pack(pairs.skip_reasons(labels).numpy()),
            "seen": {"history": card.history, "image_size": card.image_size},
        }

    def shard(
        self,
        spec: ScoreSpec,
        opened: Json,
        role: Role,
        rows: tuple[int, int],
        context: RequestContext,
    ) -> Json:
        """One shard of one checkpoint, of the anchors that there are by then."""
        model = self.loaded(spec.named(role)).model
        anchors = self._anchors(spec, opened, model.card, context.tenant)
        return score_shard(self.engine, model, anchors, spec, rows, context).to_json()

    def summarise(
        self,
        spec: ScoreSpec,
        opened: Json,
        role: Role,
        shards: list[ShardRecord],
        context: RequestContext,
    ) -> Json:
        """Raw IR and its rounding floor, SR and per-anchor values of one checkpoint."""
        return self._summary(spec, opened, role, shards, context, floor=True)

    def _summary(
        self,
        spec: ScoreSpec,
        opened: Json,
        role: Role,
        shards: list[ShardRecord],
        context: RequestContext,
        *,
        floor: bool = False,
    ) -> Json:
        model = self.loaded(spec.named(role)).model
        anchors = self._anchors(spec, opened, model.card, context.tenant)
        measured, partner = ShardRecord.concatenate(shards), unpack(opened["partner"])
        record = score.with_endpoints(self.engine, model, anchors, spec, measured, context)
        distances = score.different_state_distances(
            self.engine, model, anchors, spec, record, partner, context
        )
        return {
            **score.summarise_checkpoint(spec, record, distances, partner, context.check),
            "rounding_floor": score.rounding_floor(
                self.engine, model, anchors, spec, record, context
            )
            if floor
            else None,
            "anchor_ids": pack(anchors.anchor_ids),
            "trajectory_ids": pack(anchors.trajectory_ids),
            "skip_reasons": opened["skip_reasons"],
        }

    def look(
        self,
        spec: ScoreSpec,
        opened: Json,
        shards: Mapping[Role, Shards],
        before: Sequence[Seen],
        anchors: int,
        context: RequestContext,
    ) -> Json:
        """Judges the anchors that are measured by now, at the error that this look has."""
        part = spec.first(anchors)

        def weigh(options: EvidenceOptions) -> Evidence:
            return score.weigh(part, scores, context.check, options)

        eligible = int((unpack(opened["partner"]) >= 0).sum())
        scores = {
            role: self._summary(part, opened, role, [*shards[role].values()], context)
            for role in spec.roles()
            if eligible
        }
        plain: Json = to_plain(
            take_look(
                weigh,
                spec.evidence,
                spec.thresholds.sr,
                [seen.look for seen in before],
                len(spec.looks()),
                anchors=anchors,
                eligible=eligible,
            )
        )
        return plain

    def conclude(
        self,
        spec: ScoreSpec,
        opened: Json,
        scores: Mapping[Role, Json],
        seen: Sequence[Seen] = (),
        check: Check = go_on,
    ) -> Json:
        """The result of the job: scores, verdict, evidence and receipt. Holds no time."""
        receipt = spec.receipt(opened["evaluated"], self.engine.device)
        reference = scores.get("reference", scores["checkpoint"]) if spec.reference else None
        verdict = score.judge(spec, dict(scores))
        self.engine.metrics.record_verdict(
            spec.checkpoint.name,
            spec.perturbation.kind,
            str(verdict.outcome),
            ir_relative=verdict.ir_relative,
            sr=scores["checkpoint"]["sr"],
        )
        return {
            "checkpoint": scores["checkpoint"],
            "reference": reference,
            "verdict": score.verdict_to_json(verdict),
            "evidence": to_plain(score.evidence_of(spec, scores, seen, check)),
            "receipt": receipt_to_json(receipt),
            "anchors": opened["anchors"],
            "seen": opened["seen"],
        }

    def metadata(self, spec: ScoreSpec, life: Mapping[str, Any]) -> ScoreMetadata:
        """What is measured and how far it is."""
        return ScoreMetadata(checkpoint=spec.checkpoint, request=spec.request(), **life)

    def answer(self, spec: ScoreSpec, result: Mapping[str, Any]) -> Score:
        """The answer of a job that succeeded, from its record."""
        return score.read_score(spec, result)

    def _anchors(self, spec: ScoreSpec, opened: Json, card: ModelCard, tenant: str) -> Anchors:
        anchors = self.readers.of(tenant).reopen(
            spec.anchors, opened["anchors"], history=card.history, horizon=spec.protocol.horizon
        )
        return anchors.at_horizon(spec.protocol.horizon)
