"""The kind of job that scores a checkpoint: what it accepts, its steps, its answer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from acpc.contract import (
    AnchorSource,
    Evidence,
    EvidenceOptions,
    GivenViews,
    Population,
    Score,
    ScoreMetadata,
    ScoreRequest,
    from_plain,
    to_plain,
)

from acpc_server.encoding import SHARD_ANCHORS, AnchorJobKind, AnchorSetSource, Bench, check_latents
from acpc_server.engine import require_mode
from acpc_server.errors import InvalidArgument, below
from acpc_server.evidence import LookResult, take_look
from acpc_server.jobs import Json, Step, pack, unpack
from acpc_server.numerics import pairing, screening
from acpc_server.perturb import check_drawing, perturb_frames, series_name
from acpc_server.scheduling import RequestContext
from acpc_server.scoring import score
from acpc_server.scoring.measuring import CheckpointMeasurement, ShardRecord, latents_held
from acpc_server.scoring.spec import Role, ScoreSpec


@dataclass(eq=False)
class ScoreRun:
    """One run of a job, whose data had ``_stamp`` when it was accepted."""

    _kind: AnchorJobKind
    _spec: ScoreSpec
    _stamp: str
    _step: Step
    _context: RequestContext

    def __post_init__(self) -> None:
        self._opened: Json = {}
        # Of each checkpoint, by their rows, in order.
        self._shards: dict[Role, dict[tuple[int, int], ShardRecord]] = {
            role: {} for role in self._spec.roles()
        }

    def result(self) -> Json:
        """Take every step, and return scores, verdict, evidence and receipt. Holds no time."""
        if self._spec.looks():
            return self._until_decided()
        self._open(self._spec)
        scores: dict[Role, Json] = {}
        for role in self._shards:
            self._measure(self._spec, role)
            scores[role] = self._separate(self._spec, role)
        return self._conclude(scores)

    def _until_decided(self) -> Json:
        """Look at ever more anchors; each look is the job of that size."""
        spec, seen = self._spec, list[LookResult]()
        for count in spec.looks():
            part = spec.first(count)
            self._open(part, last=count == spec.anchors.count)
            for role in self._shards:
                self._measure(part, role)
            look = self._step(f"judging {count} anchors", partial(self._look, part, seen))
            seen.append(from_plain(LookResult, look))
            if seen[-1].decided:
                break
        return self._conclude({role: self._separate(part, role) for role in self._shards}, seen)

    def _open(self, spec: ScoreSpec, *, last: bool = True) -> None:
        """Pin down what the anchors are, and pair them.

        Unless further ones come after the ``last``, some must be eligible.
        """
        before = self._opened.get("anchors")

        def read() -> Json:
            card = self._kind.loaded(spec.checkpoint).model.card
            with self._context.phase("read"):
                anchors, identity = self._kind.readers.open(
                    spec.anchors,
                    self._stamp,
                    history=card.history,
                    horizon=spec.protocol.horizon,
                    check=self._context.check,
                    known=before,
                )
            windows, anchors = anchors.windows, anchors.at_horizon(spec.protocol.horizon)
            labels = torch.from_numpy(anchors.labels)
            states = torch.from_numpy(anchors.endpoint_states)
            pairs = pairing.pair_different_labels(
                states, labels, spec.protocol.neighbourhood, check=self._context.check
            )
            if last:
                screening.check_eligible(pairs.eligible, anchors.count)
            return {
                "anchors": identity,
                "evaluated": anchors.digest,
                "windows": windows,
                "read_as": dict(anchors.read_as),
                "partner": pack(pairs.partner.numpy()),
                "skip_reasons": pack(pairs.skip_reasons(labels).numpy()),
                "seen": {"history": card.history, "image_size": card.image_size},
                "weights_read": {
                    role: self._kind.loaded(spec.named(role)).model.card.weights_read
                    for role in self._shards
                },
            }

        self._opened = self._step("reading anchors", read)

    def _measurement(self, spec: ScoreSpec, role: Role) -> CheckpointMeasurement:
        """Return what measures one checkpoint on the anchors that there are by now."""
        loaded, horizon = self._kind.loaded(spec.named(role)), spec.protocol.horizon
        anchors = self._kind.readers.reopen(
            spec.anchors,
            self._opened["anchors"],
            history=loaded.model.card.history,
            horizon=horizon,
        ).at_horizon(horizon)
        bench = Bench(self._kind.engine, loaded, anchors, spec.numeric_mode, self._context)
        return CheckpointMeasurement(bench, spec)

    def _measure(self, spec: ScoreSpec, role: Role) -> None:
        """Measure every shard of one checkpoint; a step for each that is not known."""
        known = self._shards[role]
        fresh = [rows for rows in spec.shards() if rows not in known]

        def measure(rows: tuple[int, int]) -> Json:
            return self._measurement(spec, role).shard(rows, fit=True).to_json()

        measured = self._step.each(f"measuring the {role}", measure, fresh)
        # Read at once: the record's text is a third longer than its numbers.
        known |= dict(zip(fresh, map(ShardRecord.from_json, measured), strict=True))
        self._shards[role] = {rows: known[rows] for rows in spec.shards()}

    def _separate(self, spec: ScoreSpec, role: Role) -> Json:
        summarise = partial(self._summary, spec, role, floor=True)
        return self._step(f"separating states of the {role}", summarise)

    def _summary(self, spec: ScoreSpec, role: Role, *, floor: bool = False) -> Json:
        """Compute raw IR, SR and per-anchor values of one checkpoint, and at the end the rest.

        ``floor``: with the rounding floor and whether the checkpoint fits.
        """
        measurement, opened = self._measurement(spec, role), self._opened
        partner = unpack(opened["partner"])
        whole = ShardRecord.concatenate([*self._shards[role].values()])
        record = measurement.with_endpoints(whole)
        distances = measurement.different_state_distances(record, partner)
        check = self._context.check
        with self._context.phase("intervals"):
            fit = measurement.fit(record) if floor else None
        return {
            **score.summarise_checkpoint(spec, record, distances, partner, check),
            "rounding_floor": measurement.rounding_floor(record) if floor else None,
            "fit": fit and to_plain(fit),
            "anchor_ids": pack(measurement.bench.anchors.anchor_ids),
            "trajectory_ids": pack(measurement.bench.anchors.trajectory_ids),
            "windows": opened.get("windows"),  # absent in the records of older jobs
            "skip_reasons": opened["skip_reasons"],
        }

    def _look(self, part: ScoreSpec, before: Sequence[LookResult]) -> Json:
        """Judge the anchors that are measured by now, at the error that this look has."""
        spec = self._spec
        of_dataset = spec.evidence.population is Population.DATASET
        eligible = int((unpack(self._opened["partner"]) >= 0).sum())
        scores = {role: self._summary(part, role) for role in self._shards if eligible}

        def weigh(options: EvidenceOptions) -> Evidence:
            with self._context.phase("intervals"):
                return score.weigh(part, scores, self._context.check, options)

        look = take_look(
            weigh,
            spec.evidence,
            spec.thresholds.sr,
            [seen.look for seen in before],
            spec.anchors.count,
            anchors=part.anchors.count,
            eligible=eligible,
            windows=self._opened.get("windows") if of_dataset else None,
        )
        plain: Json = to_plain(look)
        return plain

    def _conclude(self, scores: Mapping[Role, Json], seen: Sequence[LookResult] = ()) -> Json:
        spec, opened, engine = self._spec, self._opened, self._kind.engine
        read = opened.get("weights_read", {})  # absent in the records of older jobs
        receipt = spec.receipt(
            opened["evaluated"],
            engine.device,
            read.get("checkpoint", ""),
            read.get("reference", ""),
        )
        read_as = opened.get("read_as", {})  # absent in the records of older jobs
        receipt = replace(receipt, parameters={**receipt.parameters, **read_as})
        checkpoint, reference = spec.both(scores)
        verdict = score.judge(spec, scores)
        with self._context.phase("intervals"):
            found = score.evidence_of(spec, scores, seen, self._context.check)
        result = {
            "checkpoint": checkpoint,
            "reference": reference,
            "verdict": score.verdict_to_json(verdict),
            "evidence": to_plain(found),
            "receipt": receipt.to_dict(),
            "anchors": opened["anchors"],
            "seen": opened["seen"],
        }
        shift, numbers = series_name(spec.shift), score.read_score(spec, result).numbers()
        engine.metrics.record_verdict(spec.checkpoint.name, shift, str(verdict.outcome), numbers)
        return result


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
        check_drawing(card.history, card.image_size**2, "perturbation")
        frames = torch.zeros(1, 3, card.image_size, card.image_size)
        if not isinstance(spec.shift, GivenViews):
            with below(f"perturbation.{spec.shift.kind}"):
                perturb_frames(frames, spec.shift, seed=0, anchor=0, draw=0)
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
        return ScoreMetadata(checkpoint=spec.checkpoint, request=spec.asked(ScoreRequest), **life)

    def answer(self, spec: ScoreSpec, result: Mapping[str, Any]) -> Score:
        """Return the answer of a job that succeeded, from its record."""
        return score.read_score(spec, result)
