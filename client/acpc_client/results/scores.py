"""Answer of ScoreCheckpoint."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from acpc.contract import CheckpointRef, Receipt, Record, Thresholds, WireEnum
from acpc.v1 import scoring_service_pb2 as pb
from numpy.typing import NDArray

from acpc_client.codec import from_tensor
from acpc_client.results.base import optional


class Outcome(WireEnum):
    """What the screen says."""

    UNSPECIFIED = 0
    PASSED = 1
    FAILED = 2
    INCONCLUSIVE = 3


class SkipReason(WireEnum):
    """Why an anchor takes no part in SR; UNSPECIFIED: it does."""

    UNSPECIFIED = 0
    ONE_LABEL = 1
    NONE_IN_REACH = 2


@dataclass(frozen=True, repr=False, eq=False)
class IrSummary(Record):
    """Raw IR at one horizon and one quantile."""

    horizon: int
    quantile: float
    ir_raw: float


@dataclass(frozen=True, repr=False, eq=False)
class AnchorValues(Record):
    """Per-anchor values, in the order of the anchors.

    Attributes:
        anchor_ids: Identity of each anchor, int64 (n,).
        radius: Mean normalised radius over draws, float64 (n,).
        motion_scale: Clean-motion scale s_i, float64 (n,).
        different_state_distance: D_i, float64 (n,); NaN where skipped.
        partner: Index of the partner, int64 (n,); -1 where skipped.
        draw_radius: Radius of every draw, float64 (n, draws).
        skip_reasons: Why each anchor has no partner, n of them.
        step_radius: Distance of clean and perturbed prediction at each step in units of the motion
            scale, mean over draws, float64 (n, H); None when the server left it out.
    """

    anchor_ids: NDArray[np.int64]
    radius: NDArray[np.float64]
    motion_scale: NDArray[np.float64]
    different_state_distance: NDArray[np.float64]
    partner: NDArray[np.int64]
    draw_radius: NDArray[np.float64]
    skip_reasons: tuple[SkipReason, ...]
    step_radius: NDArray[np.float64] | None

    @classmethod
    def from_message(cls, message: pb.AnchorValues) -> AnchorValues:
        """Reads the wire form."""
        steps = optional(message, "step_radius")
        return cls(
            anchor_ids=from_tensor(message.anchor_ids, "anchor_values.anchor_ids"),
            radius=from_tensor(message.radius, "anchor_values.radius"),
            motion_scale=from_tensor(message.motion_scale, "anchor_values.motion_scale"),
            different_state_distance=from_tensor(
                message.different_state_distance, "anchor_values.different_state_distance"
            ),
            partner=from_tensor(message.partner, "anchor_values.partner"),
            draw_radius=from_tensor(message.draw_radius, "anchor_values.draw_radius"),
            skip_reasons=tuple(SkipReason(reason) for reason in message.skip_reasons),
            step_radius=None if steps is None else from_tensor(steps, "anchor_values.step_radius"),
        )


@dataclass(frozen=True, repr=False, eq=False)
class CheckpointScore(Record):
    """IR and SR of one checkpoint.

    Attributes:
        ir_raw: Quantile over anchors of the mean normalised radius.
        sr: Separation rate.
        anchors: Anchors n.
        eligible: Anchors with a different-label partner in reach.
        skipped: Anchors without one.
        median_latent_distance: Of clean endpoint latents; near zero means collapse.
        summaries: Raw IR at every horizon and quantile asked for.
        anchor_values: None when the server left them out.
    """

    checkpoint: CheckpointRef
    ir_raw: float
    sr: float
    anchors: int
    eligible: int
    skipped: int
    median_latent_distance: float
    summaries: tuple[IrSummary, ...]
    anchor_values: AnchorValues | None

    @classmethod
    def from_message(cls, message: pb.CheckpointScore) -> CheckpointScore:
        """Reads the wire form."""
        values = message.anchor_values if message.HasField("anchor_values") else None
        return cls(
            checkpoint=CheckpointRef.from_message(message.checkpoint),
            ir_raw=message.ir_raw,
            sr=message.sr,
            anchors=message.anchors,
            eligible=message.eligible,
            skipped=message.skipped,
            median_latent_distance=message.median_latent_distance,
            summaries=tuple(IrSummary(s.horizon, s.quantile, s.ir_raw) for s in message.summaries),
            anchor_values=None if values is None else AnchorValues.from_message(values),
        )


@dataclass(frozen=True, repr=False, eq=False)
class Verdict(Record):
    """What the screen decided and why.

    Attributes:
        outcome: Passed, failed, or inconclusive without a reference.
        ir_relative: IR relative to the reference; None without one.
        score: S; nonnegative exactly when both requirements hold. None without a reference.
        delta_score: S of the checkpoint minus S of the reference. None without one.
        ir_passed: None without a reference.
        sr_passed: Whether SR reaches its threshold.
        thresholds: The thresholds the server used.
        summary: One sentence that says what decided the outcome.
    """

    outcome: Outcome
    ir_relative: float | None
    score: float | None
    delta_score: float | None
    ir_passed: bool | None
    sr_passed: bool
    thresholds: Thresholds
    summary: str

    @classmethod
    def from_message(cls, message: pb.Verdict) -> Verdict:
        """Reads the wire form."""
        return cls(
            outcome=Outcome(message.outcome),
            ir_relative=optional(message, "ir_relative"),
            score=optional(message, "score"),
            delta_score=optional(message, "delta_score"),
            ir_passed=optional(message, "ir_passed"),
            sr_passed=message.sr_passed,
            thresholds=Thresholds.from_message(message.thresholds),
            summary=message.summary,
        )


@dataclass(frozen=True, repr=False, eq=False)
class Score(Record):
    """Answer of a scoring job; ``reference`` is None when none was named."""

    checkpoint: CheckpointScore
    reference: CheckpointScore | None
    verdict: Verdict
    receipt: Receipt

    @classmethod
    def from_message(cls, message: pb.ScoreCheckpointResponse) -> Score:
        """Reads the wire form."""
        reference = message.reference if message.HasField("reference") else None
        return cls(
            checkpoint=CheckpointScore.from_message(message.checkpoint),
            reference=None if reference is None else CheckpointScore.from_message(reference),
            verdict=Verdict.from_message(message.verdict),
            receipt=Receipt.from_message(message.receipt),
        )


@dataclass(frozen=True, repr=False, eq=False)
class AnchorPreview(Record):
    """What the model saw at one anchor: histories at its image size, for a person to look at.

    Attributes:
        anchor: Index of the anchor, in the order of ``AnchorValues``.
        clean: Its history, uint8 (h, height, width, 3).
        perturbed: The history under one draw of the shift, clipped to what a picture can show.
        partner: History of its different-label partner; None where it was skipped.
    """

    anchor: int
    clean: NDArray[np.uint8]
    perturbed: NDArray[np.uint8]
    partner: NDArray[np.uint8] | None

    @classmethod
    def from_message(cls, message: pb.AnchorPreview) -> AnchorPreview:
        """Reads the wire form."""
        partner = optional(message, "partner")
        return cls(
            anchor=message.anchor,
            clean=from_tensor(message.clean, "previews.clean"),
            perturbed=from_tensor(message.perturbed, "previews.perturbed"),
            partner=None if partner is None else from_tensor(partner, "previews.partner"),
        )
