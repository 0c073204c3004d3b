"""The kind of job that scores a checkpoint: what it accepts, its steps, its answer."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from acpc.contract import AnchorSource, GivenViews, Score, ScoreMetadata

from acpc_server.encoding import SHARD_ANCHORS, AnchorJobKind, AnchorSetSource, check_latents
from acpc_server.engine import require_mode
from acpc_server.errors import InvalidArgument, below
from acpc_server.jobs import Json, Step
from acpc_server.perturb import check_drawing, perturb_frames
from acpc_server.scheduling import RequestContext
from acpc_server.scoring import score
from acpc_server.scoring.measuring import latents_held
from acpc_server.scoring.run import ScoreRun
from acpc_server.scoring.spec import ScoreSpec


class ScoreJobKind(AnchorJobKind):
    """Measures IR and SR of a checkpoint and its reference, and judges them."""

    name = "score_checkpoint"
    spec_type = ScoreSpec

    def check(self, spec: ScoreSpec) -> None:
        """Reject a spec that cannot work, before it is queued."""
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
        check_drawing([spec.perturbation], card.history, card.image_size**2, "perturbation")
        frames = torch.zeros(1, 3, card.image_size, card.image_size)
        if not isinstance(spec.perturbation, GivenViews):
            with below(f"perturbation.{spec.perturbation.kind}"):
                perturb_frames(frames, spec.perturbation, seed=0, anchor=0, draw=0)
        source = "anchor_set" if isinstance(spec.anchors, AnchorSetSource) else "dataset.count"
        views, endpoints = "the views of one anchor", "the endpoints of all anchors"
        for model in models.values():
            asked = self.engine, model, spec.numeric_mode
            check_latents(*asked, latents_held(model.card, spec), "protocol.draws", views)
            check_latents(*asked, spec.anchors.count, source, endpoints)
        self.readers.check(spec.anchors, card, history=card.history, horizon=spec.protocol.horizon)

    def within(self, spec: ScoreSpec) -> ScoreSpec:
        """Return the spec with at most as many anchors as its dataset has."""
        source = spec.anchors
        if not isinstance(source, AnchorSource):
            return spec
        card = self.loaded(spec.checkpoint).model.card
        offered = self.readers.offered(source, history=card.history, horizon=spec.protocol.horizon)
        count = min(source.count, max(2, offered))
        looks = spec.until_decided
        if looks is not None and looks.batch > count:
            looks = replace(looks, batch=count)
        return replace(spec, anchors=replace(source, count=count), until_decided=looks)

    def count_steps(self, spec: ScoreSpec) -> int:
        """Count one step to read the anchors, one per shard, one summary per checkpoint.

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
        """Take every step of a job, in order; see :class:`~acpc_server.jobs.JobKind`."""
        return ScoreRun(self, spec, stamp, step, context).result()

    def metadata(self, spec: ScoreSpec, life: Mapping[str, Any]) -> ScoreMetadata:
        """Return what is measured and how far it is."""
        return ScoreMetadata(checkpoint=spec.checkpoint, request=spec.request(), **life)

    def answer(self, spec: ScoreSpec, result: Mapping[str, Any]) -> Score:
        """Return the answer of a job that succeeded, from its record."""
        return score.read_score(spec, result)
