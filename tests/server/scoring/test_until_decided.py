"""A job that stops when it is decided is, at the anchors it stops at, the job of that size.

Networks of random weights predict nothing: where they do not fail they do not fit.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from acpc.contract import (
    AnchorSource,
    EvidenceOptions,
    GaussianNoise,
    LookStop,
    Outcome,
    Score,
    ScoreProtocol,
    Thresholds,
    UntilDecided,
)
from acpc_server.data import DatasetStore
from acpc_server.data.anchor_sets import AnchorStore, UploadHeader, store_drawn
from acpc_server.encoding import AnchorReaders, AnySource
from acpc_server.engine import CheckpointCache, DeviceClient
from acpc_server.errors import FailedPrecondition
from acpc_server.jobs import Json
from acpc_server.models import CheckpointLimits
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from acpc_server.scoring import ScoreJobKind, ScoreSpec
from anchor_batches import ROOMY
from public_checkpoint import public_config, write_checkpoint
from public_dataset import public_columns, write_public_dataset

HISTORY, HORIZON, LIMIT, BATCH, FIRST = 3, 2, 18, 8, 9
SOURCE = AnchorSource(dataset="rooms.h5", task="tworoom", count=LIMIT)
# What certainly passes and fails; that so few trajectories can tell, IR is a median.
PASSES, FAILS = Thresholds(ir=1e3, sr=1e-4), Thresholds(ir=1e-3, sr=0.05)


class ScoringSteps:
    """The kind of job on a world of its own, and its steps as a record keeps them."""

    def __init__(self, root: Path) -> None:
        for name, seed in (("model", 0), ("base", 3)):
            write_checkpoint(root / "checkpoints" / name, public_config(), seed=seed)
        (root / "datasets").mkdir()
        content = public_columns([60] * 18, side=28)
        write_public_dataset(root / "datasets" / "rooms.h5", content)
        metrics, cpu = Metrics(), torch.device("cpu")
        self.datasets = DatasetStore(root / "datasets")
        self.sets = AnchorStore(root / "sets", ROOMY, metrics)
        self.engine = DeviceClient(cpu, metrics, threads=1)
        self.checkpoints = CheckpointCache(
            root / "checkpoints", cpu, metrics, limits=CheckpointLimits(), budget_bytes=2**30
        )
        self.readers = AnchorReaders(self.datasets, self.sets)

    def kind(self) -> ScoreJobKind:
        """That of a process with no anchors open."""
        return ScoreJobKind(self.engine, self.checkpoints, AnchorReaders(self.datasets, self.sets))

    def spec(self, **changed: object) -> ScoreSpec:
        names = {
            role: self.checkpoints.get(name).pinned()
            for role, name in (("checkpoint", "model"), ("reference", "base"))
        }
        asked = ScoreSpec(
            **names,
            anchors=SOURCE,
            shift=GaussianNoise(sigma=0.05),
            protocol=ScoreProtocol(draws=1, horizon=HORIZON, quantile=0.5),
            evidence=EvidenceOptions(resamples=200),
            until_decided=UntilDecided(BATCH),
        )
        return replace(asked, **changed)

    def set_of(self, source: AnchorSource) -> AnySource:
        window = {"history": HISTORY, "horizon": HORIZON}
        header = UploadHeader(request_id=str(source), anchors=source.count, **window)
        with self.datasets.drawn(source, **window) as drawn, self.sets.upload(header) as upload:
            digest = store_drawn(upload, drawn, lambda: None).digest
        return self.readers.named_set(digest)

    def run(self, spec: ScoreSpec, recorded: list[Json] | None = None) -> Json:
        """The result; steps that are ``recorded`` are replayed, and further ones added to it."""
        record = [] if recorded is None else recorded
        replayed = iter(list(record))

        kind, context = self.kind(), RequestContext(Priority.JOB)

        class Steps:
            def __call__(self, phase: str, work: Callable[[], Json]) -> Json:
                known = next(replayed, None)
                if known is None:
                    known = json.loads(json.dumps(work()))
                    record.append(known)
                return known

            def each(
                self, phase: str, measure: Callable[[Any], Json], parts: Iterable[Any]
            ) -> Iterator[Json]:
                for part in parts:
                    yield self(phase, partial(measure, part))

        result = kind.run(spec, kind.stamp(spec), Steps(), context)
        return json.loads(json.dumps(result))

    def answer(self, spec: ScoreSpec, result: Json) -> Score:
        return self.kind().answer(spec, result)


@pytest.fixture(scope="module")
def scoring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScoringSteps]:
    made = ScoringSteps(tmp_path_factory.mktemp("scoring"))
    yield made
    made.engine.close()


@pytest.fixture(scope="module")
def undecided(scoring: ScoringSteps) -> tuple[ScoreSpec, Json, list[Json]]:
    """A job that looks to the end: its thresholds are the numbers of all anchors themselves."""
    whole = scoring.answer(fixed := scoring.spec(until_decided=None), scoring.run(fixed))
    borderline = Thresholds(ir=whole.verdict.ir_relative, sr=0.01)
    spec, record = scoring.spec(thresholds=borderline), []
    return spec, scoring.run(spec, record), record


def same_score(result: Json, other: Json) -> None:
    """All that is not about the looks, to the last bit."""
    for part in ("checkpoint", "reference", "verdict", "anchors", "seen"):
        assert result[part] == other[part], part
    receipts = [{**found["receipt"], "parameters": 0} for found in (result, other)]
    for receipt in receipts:
        receipt.pop("parameters_digest")
    assert receipts[0] == receipts[1]


@pytest.mark.parametrize("origin", [pytest.param("dataset", marks=pytest.mark.process), "set"])
def test_where_it_stops_it_is_the_job_of_that_size(
    scoring: ScoringSteps, undecided: tuple[ScoreSpec, Json, list[Json]], origin: str
) -> None:
    """A size that cuts a shard too; of a set, the job is that of a set of these anchors."""
    source = scoring.set_of(SOURCE) if origin == "set" else SOURCE
    clear = scoring.spec(anchors=source, thresholds=FAILS)
    sizes = clear.looks()
    assert sizes == [FIRST, LIMIT]
    ended = [(clear, scoring.run(clear), FIRST)]
    if origin == "dataset":
        ended.append((*undecided[:2], LIMIT))
    for spec, result, size in ended:
        fixed = replace(spec, anchors=replace(source, count=size), until_decided=None)
        same_score(result, scoring.run(fixed))
        score = scoring.answer(spec, result)
        assert score.checkpoint.anchors == size
        looked = [look.anchors for look in score.evidence.looks.looks]
        assert looked == sizes[: sizes.index(size) + 1]


def test_what_is_not_decided_stops_at_the_limit(
    scoring: ScoringSteps, undecided: tuple[ScoreSpec, Json, list[Json]]
) -> None:
    spec, result, record = undecided
    assert len(record) == scoring.kind().count_steps(spec)
    score = scoring.answer(spec, result)
    looks = score.evidence.looks
    assert score.evidence.confident_outcome is Outcome.DOES_NOT_FIT
    assert (looks.stop, looks.limit, looks.batch) == (LookStop.LIMIT, LIMIT, FIRST)
    assert looks.confidence == score.evidence.sure == 0.95 < score.evidence.confidence
    assert sum(look.failing for look in looks.looks) == pytest.approx(0.05)
    assert sum(look.passing for look in looks.looks) <= 0.05 + 1e-12
    stopping = score.receipt.parameters["until_decided"]
    assert (stopping["limit"], stopping["batch"]) == (LIMIT, BATCH)


@pytest.mark.parametrize(("thresholds", "outcome"), [(PASSES, "does_not_fit"), (FAILS, "failed")])
def test_what_is_clear_stops_early_with_intervals_that_say_so(
    scoring: ScoringSteps, thresholds: Thresholds, outcome: str
) -> None:
    spec, record = scoring.spec(thresholds=thresholds), []
    score = scoring.answer(spec, scoring.run(spec, record))
    evidence = score.evidence
    looks = evidence.looks
    assert looks.stop is LookStop.DECIDED
    assert str(evidence.confident_outcome) == str(score.verdict.outcome) == outcome
    assert score.checkpoint.anchors == looks.looks[-1].anchors < LIMIT
    assert len(record) < scoring.kind().count_steps(spec)
    ir, sr = evidence.ir_relative, evidence.sr
    if thresholds is PASSES:
        assert ir.upper <= thresholds.ir
        assert sr.lower >= thresholds.sr
        assert looks.looks[-1].p_passed <= looks.looks[-1].passing
    else:
        assert ir.lower > thresholds.ir
        assert looks.looks[-1].p_failed <= looks.looks[-1].failing


def test_the_evidence_is_that_of_the_job_of_that_size_at_the_confidence_of_the_look(
    scoring: ScoringSteps,
) -> None:
    spec = scoring.spec(thresholds=FAILS)
    found = scoring.answer(spec, scoring.run(spec))
    options = replace(
        spec.evidence, confidence=found.evidence.confidence, resamples=found.evidence.resamples
    )
    fixed = replace(spec.first(found.checkpoint.anchors), evidence=options)
    assert replace(found.evidence, looks=None) == scoring.answer(fixed, scoring.run(fixed)).evidence


def test_a_look_at_which_no_anchor_is_eligible_decides_nothing(scoring: ScoringSteps) -> None:
    """The next one may have some; at the limit the job fails as the fixed one does."""
    alike = replace(scoring.spec().protocol, neighbourhood=1e-9)
    spec, record = scoring.spec(protocol=alike, until_decided=UntilDecided(3)), []
    with pytest.raises(FailedPrecondition, match="none of the 18 anchors"):
        scoring.run(spec, record)
    seen = [one for one in record if "look" in one]
    found = [(one["decided"], one["look"]["eligible"]) for one in seen]
    assert found == [(False, 0), (False, 0), (False, 2)]
