"""Scores for the report's tests, drawn from a formula: they stand for no model."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from acpc.contract import (
    CheckpointRef,
    DatasetAnchors,
    GaussianBlur,
    NumericMode,
    ScoreProtocol,
    Thresholds,
    parse,
    screen,
    to_plain,
)
from acpc.v1 import receipt_pb2
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import AnchorPreview, Result, Score, ScoreRequest, save_result
from acpc_lab.campaigns import Entry, TaskState
from acpc_lab.report import ReportData
from acpc_lab.sweeps import Cell, CellResult, SweepFolder, SweepPlan
from client_messages import tensor

HOSTILE = "<script>alert(1)</script>'\"&$x_1$ ]]><!--"
HORIZON, DRAWS, QUANTILE, MARGIN = 8, 5, 0.9, 0.1
SKIP_EVERY = 5
T_IR, T_SR = 0.3, 0.95


def digest(*parts: object) -> str:
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()


def side(
    name: str, push: float, spread: float, *, anchors: int = 100, seed: int = 0
) -> pb.CheckpointScore:
    """A checkpoint whose radii lie around ``push`` and different states around ``spread``."""
    random = np.random.default_rng(seed)
    anchor_push = push * random.lognormal(0, 0.45, (anchors, 1))
    draw_radius = anchor_push * random.lognormal(0, 0.08, (anchors, DRAWS))
    distance = spread * random.lognormal(0, 0.6, anchors)
    distance[::SKIP_EVERY] = np.nan
    partner = np.where(np.isnan(distance), -1, (np.arange(anchors) + 1) % anchors)
    radius = draw_radius.mean(axis=1)
    ir_raw = float(np.quantile(radius, QUANTILE))
    eligible = distance[~np.isnan(distance)]
    growth = np.linspace(0.5, 1.4, HORIZON)
    return pb.CheckpointScore(
        checkpoint=receipt_pb2.CheckpointRef(name=name),
        ir_raw=ir_raw,
        sr=float((eligible > ir_raw + MARGIN).mean()),
        anchors=anchors,
        eligible=len(eligible),
        skipped=anchors - len(eligible),
        median_latent_distance=5 * spread,
        summaries=[pb.IrSummary(horizon=HORIZON, quantile=QUANTILE, ir_raw=ir_raw)],
        anchor_values=pb.AnchorValues(
            anchor_ids=tensor(np.arange(anchors, dtype=np.int64) + 1000),
            radius=tensor(radius),
            motion_scale=tensor(random.lognormal(0, 0.2, anchors)),
            different_state_distance=tensor(distance),
            partner=tensor(partner.astype(np.int64)),
            draw_radius=tensor(draw_radius),
            step_radius=tensor(radius[:, None] * growth),
        ),
    )


SE_LOG_IR, SE_SR = 0.1, 0.015
BOUND = 1.96


def evidence(relative: float, sr: float) -> pb.Evidence:
    """Evidence as if log IR and SR were measured with normal errors; decided by the intervals."""
    normal = NormalDist()
    beyond = (math.log(T_IR / relative) / SE_LOG_IR, (sr - T_SR) / SE_SR)
    p_passed = min(1.0, 2 * normal.cdf(-min(beyond)))
    p_failed = min(1.0, 2 * normal.cdf(min(beyond)))
    doubts = [abs(z) < BOUND for z in beyond]
    decided = pb.OUTCOME_FAILED if min(beyond) <= -BOUND else pb.OUTCOME_PASSED
    open_ = any(doubts) and decided != pb.OUTCOME_FAILED
    ir = [relative * math.exp(sign * BOUND * SE_LOG_IR) for sign in (-1, 1)]
    rate = [min(max(sr + sign * BOUND * SE_SR, 0.0), 1.0) for sign in (-1, 1)]
    ends = {
        "ir_raw": ir,
        "reference_ir_raw": [0.9, 1.1],
        "ir_relative": [1.0, 1.0] if relative == 1 else ir,
        "sr": rate,
        "reference_sr": rate,
        "score": [min((T_IR - ir[1 - i]) / T_IR, (rate[i] - T_SR) / T_SR) for i in (0, 1)],
        "delta_score": [0.0, 3.0],
    }
    return pb.Evidence(
        confidence=0.95,
        confident_outcome=pb.OUTCOME_UNDECIDED if open_ else decided,
        doubt=(doubts[0] + 2 * doubts[1]) * open_,
        anchors_to_decide=240 if open_ else None,
        trajectories=40,
        resamples=2000,
        p_passed=p_passed,
        p_failed=p_failed,
        **{name: pb.Interval(lower=a, upper=b, method="made up") for name, (a, b) in ends.items()},
    )


def judged(
    subject: pb.CheckpointScore,
    reference: pb.CheckpointScore | None,
    *,
    shift: str = "",
    sure: bool = True,
) -> Score:
    """The score of a checkpoint, with the screen's rule applied; ``sure``: with evidence."""
    found = screen(
        ir_raw=subject.ir_raw,
        sr=subject.sr,
        reference_ir_raw=None if reference is None else reference.ir_raw,
        reference_sr=None if reference is None else reference.sr,
        t_ir=T_IR,
        t_sr=T_SR,
    )
    name = subject.checkpoint.name
    summary = f"the screen's sentence on {name} under {shift}"
    verdict = replace(found, summary=summary).to_message()
    receipt = receipt_pb2.Receipt(
        checkpoint_digest=digest(name),
        reference_digest="" if reference is None else digest(reference.checkpoint.name),
        anchors_digest=digest("anchors", name.partition("-")[0]),
        perturbation_digest=digest(shift),
        parameters_digest=digest("parameters"),
        code_version="0.1.0",
        numeric_mode=receipt_pb2.NUMERIC_MODE_FP32,
        device="cpu",
        torch_version="2.6.0",
    )
    return Score.from_message(
        pb.ScoreCheckpointResponse(
            checkpoint=subject,
            reference=reference,
            verdict=verdict,
            receipt=receipt,
            evidence=evidence(verdict.ir_relative, subject.sr) if sure and reference else None,
        )
    )


def saved(path: Path, score: Score, shift: str = "blur:15") -> Path:
    reference = score.reference and score.reference.checkpoint
    anchors = DatasetAnchors("two-room.h5", "two-room.yaml")
    asked = ScoreRequest(score.checkpoint.checkpoint, anchors, parse(shift), reference=reference)
    save_result(Result("score", score, to_plain(asked), "operations/1"), path)
    return path


def measured(name: str, shift: str, score: Score | None, **known: Any) -> CellResult:
    reference = score and score.reference
    asked = Cell(
        checkpoint=CheckpointRef(name),
        reference=reference and reference.checkpoint,
        anchors=DatasetAnchors("two-room.h5", "two-room.yaml"),
        shift=parse(shift),
        protocol=ScoreProtocol(seed=0),
        thresholds=Thresholds(),
        numeric_mode=NumericMode.SERVER_DEFAULT,
        labels={},
    )
    given = {"state": TaskState.SUCCEEDED, "cell": asked, "shift": shift, **known}
    return CellResult(score=score, **given)


def cell(
    task: str, run: str, level: float, shift: str, *, number: int = 0, success: bool = True
) -> CellResult:
    weaken = {"gaussian_noise:0.08": 1.0, "blur:15": 0.6, "resize:0.25": 0.8}.get(shift, 1.0)
    push = 2.2 * weaken * np.exp(-38 * level) + 0.12
    name = f"{task}-s{run}-a{level:g}"
    reference = side(f"{task}-s{run}-a0", 2.2 * weaken + 0.12, 2.2, seed=number)
    subject = reference if level == 0 else side(name, push, 2.2, seed=number + 1)
    return measured(
        name,
        shift,
        judged(subject, reference, shift=shift),
        task=task,
        run=run,
        level=level,
        success=0.9 - 0.7 * min(1.0, push / 2.3) if success else None,
        clean_success=0.88 if success else None,
        operation=f"operations/{digest(name, shift)[:12]}",
    )


def sweep(
    tasks: Sequence[str] = ("tworoom", "pusht"),
    runs: Sequence[str] = ("3072", "3073", "3074"),
    levels: Sequence[float] = (0, 0.02, 0.04, 0.08),
    shifts: Sequence[str] = ("gaussian_noise:0.08", "blur:15"),
    *,
    success: bool = True,
) -> ReportData:
    cells = [
        cell(task, run, level, shift, number=97 * row + 7 * column, success=success)
        for shift in shifts
        for row, task in enumerate(tasks)
        for column, run in enumerate(runs)
        for level in levels
    ]
    return ReportData(title="Noise sweep", cells=tuple(cells), command="acpc sweep run sweep.yaml")


def preview(size: int = 32, *, seed: int = 0, partner: bool = True) -> AnchorPreview:
    random = np.random.default_rng(seed)
    ramp = np.linspace(40, 220, size)[None, :, None, None]
    clean = np.broadcast_to(ramp, (3, size, size, 3)).astype(np.uint8)
    noise = random.normal(0, 20, clean.shape)
    perturbed = np.clip(clean + noise, 0, 255).astype(np.uint8)
    return AnchorPreview(0, clean, perturbed, clean[:, :, ::-1].copy() if partner else None)


def renamed(data: ReportData, old: str, new: str) -> ReportData:
    cells = [replace(cell, name=new) if cell.name == old else cell for cell in data.cells]
    return data.with_(cells=tuple(cells))


def kept_sweep(folder: Path) -> Path:
    """A sweep on disk: two cells measured, one failed, one not yet submitted."""
    cells = [
        Cell(
            checkpoint=CheckpointRef(f"noise-{level}"),
            reference=CheckpointRef("noise-0"),
            anchors=DatasetAnchors("two-room.h5", "two-room.yaml"),
            shift=GaussianBlur(15),
            protocol=ScoreProtocol(seed=0),
            thresholds=Thresholds(),
            numeric_mode=NumericMode.SERVER_DEFAULT,
            labels={"noise": level, "run": 7, "success_gaussian_blur": 100 * level, "other": "x"},
        )
        for level in (0, 0.02, 0.04, 0.08)
    ]
    disk = SweepFolder(folder)
    document = {
        "name": "by noise",
        "checkpoints": ["noise-{noise}"],
        "anchors": {"dataset": "two-room.h5", "task": "two-room.yaml"},
        "shifts": ["blur:15"],
    }
    with disk.writing():
        disk.write_plan(SweepPlan("by noise", "What it is about.", document, tuple(cells)))
        failed = Entry(TaskState.FAILED, 1, "operations/2", "NOT_FOUND", "no checkpoint")
        entries = {cells[2].id: failed}
        for index, push in ((0, 2.0), (1, 0.5)):
            cell = cells[index]
            subject = side(cell.checkpoint.name, push, 2.0)
            disk.save(cell, judged(subject, side("noise-0", 2.0, 2.0)))
            entries[cell.id] = Entry(TaskState.SUCCEEDED, 1, f"operations/{index}")
        disk.write_entries(entries)
    return folder


def changed(data: ReportData, *indices: int, **changes: object) -> ReportData:
    """The data with other values in the cells of these indices; none: in all of them."""
    chosen = indices or range(len(data.cells))
    cells = [replace(c, **changes) if i in chosen else c for i, c in enumerate(data.cells)]
    return data.with_(cells=tuple(cells))


def with_evidence(cell: CellResult, **changes: object) -> CellResult:
    """The cell with other evidence; without any where nothing is given."""
    assert cell.score is not None and cell.score.evidence is not None
    evidence = replace(cell.score.evidence, **changes) if changes else None
    return replace(cell, score=replace(cell.score, evidence=evidence))
