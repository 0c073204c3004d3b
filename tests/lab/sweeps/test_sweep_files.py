"""Sweep files: every key is read, and every mistake is named with its line and its place."""

import hashlib
import re
from pathlib import Path

import pytest
from acpc.contract import (
    DatasetAnchors,
    EvidenceOptions,
    GaussianBlur,
    Identity,
    MotionBlur,
    NumericMode,
    PartnerPast,
    Population,
    Reading,
    Registered,
    Resize,
    ScoreProtocol,
    Thresholds,
    UntilDecided,
)
from acpc_lab.sweeps import Sweep, SweepFileError, example, read_spec
from acpc_lab.sweeps.spec import SweepSpec
from sweep_plans import planned

WHOLE = """\
name: whole
description: Everything there is.
reference: plain
checkpoints:
  - alone
  - name: ["run{run}/level-{level}", "old/*"]
    weights: weights_epoch_{epoch}.pt
    reference: {name: "run{run}/level-0", weights: weights.pt}
    labels: {task: tworoom, seed: 3}
    anchors: {set: "DIGEST"}
anchors: {dataset: rooms.h5, task: tworoom, count: 50, seed: 7, frameskip: 2, one_per_episode: true}
shifts:
  - gaussian_noise:[0.02, 0.05]
  - blur:15
  - identity
  - resize: [0.5, 0.25]
  - jpeg: 20..40/3
  - motion_blur: {length: [5, 9], angle: [0, 30]}
  - registered: {name: fog, parameters: {density: 0.3}}
seeds: [0, 5]
protocol:
  draws: 3
  horizon: 4
  quantile: 0.8
  margin: 0.2
  weights: [0.5, 0.5, 0, 0]
  extra_horizons: [1, 2]
  extra_quantiles: 0.5
thresholds: {ir: 0.2, sr: 0.9}
evidence: {confidence: 0.9, resamples: 500, seed: 3, population: trajectories}
until_decided: 10
gate: confident
numeric_mode: tf32
concurrency: 9
retries: 0
""".replace("DIGEST", "ab" * 32)
LEAST = """\
checkpoints: [a]
anchors: {dataset: rooms.h5, task: tworoom}
shifts: ["blur:5"]
"""


def read(tmp_path: Path, text: str) -> SweepSpec:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return Sweep.load(file).spec


def test_every_key_is_read(tmp_path: Path) -> None:
    spec = read(tmp_path, WHOLE)
    assert (spec.name, spec.description) == ("whole", "Everything there is.")
    alone, group = spec.groups
    assert [pattern.text for pattern in group.names] == ["run{run}/level-{level}", "old/*"]
    assert (alone.reference.name, group.reference.name) == ("plain", "run{run}/level-0")
    assert group.labels == {"task": "tworoom", "seed": 3}
    assert group.anchors == "ab" * 32
    assert alone.anchors == DatasetAnchors("rooms.h5", "tworoom", 50, 7, 2, True)
    assert [str(shift) for shift in spec.shifts] == [
        "gaussian_noise:0.02", "gaussian_noise:0.05", "gaussian_blur:15", "identity", "resize:0.5",
        "resize:0.25", "jpeg:20", "jpeg:30", "jpeg:40", "motion_blur:5", "motion_blur:5@30",
        "motion_blur:9", "motion_blur:9@30", "fog:density=0.3",
    ]  # fmt: skip
    assert spec.shifts[2:5] == (GaussianBlur(15), Identity(), Resize(0.5))
    assert spec.shifts[-3:] == (
        MotionBlur(9.0, 0.0), MotionBlur(9.0, 30.0), Registered("fog", {"density": 0.3}),
    )  # fmt: skip
    assert spec.seeds == (0, 5)
    assert spec.protocols[0] == ScoreProtocol(3, 0, 4, 0.8, 0.2, (0.5, 0.5, 0, 0), (1, 2), (0.5,))
    assert spec.thresholds == Thresholds(0.2, 0.9)
    judging = EvidenceOptions(0.9, 500, 3, Population.TRAJECTORIES)
    assert (spec.evidence, spec.until_decided) == (judging, UntilDecided(10))
    assert spec.gate == "confident"
    assert spec.numeric_mode is NumericMode.TF32
    assert (spec.concurrency, spec.retries) == (9, 0)


def test_what_is_left_out_is_the_papers_and_named_by_the_file(tmp_path: Path) -> None:
    spec = read(tmp_path, LEAST)
    assert spec.name == "mine"
    assert (spec.seeds, spec.protocols[0], spec.thresholds) == ((0,), ScoreProtocol(), Thresholds())
    assert spec.numeric_mode is NumericMode.SERVER_DEFAULT
    assert spec.groups[0].reference is None
    assert (spec.evidence, spec.until_decided) == (EvidenceOptions(), None)
    assert read(tmp_path, LEAST + "until_decided: true\n").until_decided == UntilDecided(25)
    assert Sweep.load(tmp_path / "mine.yaml").folder == tmp_path / "mine.sweep"


def test_thresholds_come_from_a_file_beside_it_and_the_plan_holds_them(tmp_path: Path) -> None:
    """The plan can be read again without the file, and its cells ask for what it said."""
    kept = Path(__file__).parents[1] / "thresholds.json"
    (tmp_path / "mine.json").write_bytes(kept.read_bytes())
    spec = read(tmp_path, LEAST + "thresholds: mine.json\n")
    digest = hashlib.sha256(kept.read_bytes()).hexdigest()
    assert spec.thresholds == Thresholds(0.3, 0.9, digest, "lewm")
    (warning,) = spec.warnings
    assert warning.startswith("mine.json: t_IR 0.3 lies at the edge of its grid")
    (tmp_path / "mine.json").unlink()
    again = Sweep.of(spec.document, tmp_path / "mine.sweep").spec
    assert (again.thresholds, again.warnings) == (spec.thresholds, ())
    by_hand = read(tmp_path, LEAST + "thresholds: {ir: 0.3, sr: 0.9}\n")
    made = [planned(item, ["a"]) for item in (spec, again, by_hand)]
    ids = [plan.cells[0].id for plan in made]
    assert ids[0] == ids[1] != ids[2]
    assert made[0].cells[0].request().thresholds == spec.thresholds
    with pytest.raises(SweepFileError, match=r"line 4: thresholds: cannot read .*mine.json: No"):
        read(tmp_path, LEAST + "thresholds: mine.json\n")


def test_the_reading_of_the_protocol(tmp_path: Path) -> None:
    alone = read(tmp_path, LEAST + "protocol: released\n").protocols[0]
    assert alone == ScoreProtocol(reading=Reading.RELEASED)
    text = "protocol: {reading: released, partner_past: own, neighbourhood: 0.25}\n"
    spec = read(tmp_path, LEAST + text)
    assert (spec.protocols[0].reading, spec.protocols[0].partner_past) == (
        Reading.RELEASED,
        PartnerPast.OWN,
    )
    assert [x.neighbourhood for x in spec.protocols] == [0.25]
    assert [x.neighbourhood for x in read(tmp_path, LEAST).protocols] == [0.35]
    windows = read(tmp_path, LEAST.replace("tworoom}", "tworoom, window_future_frames: 9}"))
    assert windows.groups[0].anchors == DatasetAnchors(
        "rooms.h5", "tworoom", window_future_frames=9
    )


def test_a_list_of_neighbourhoods_is_the_papers_control(tmp_path: Path) -> None:
    """One file scores all four; each is a cell of its own, and the others keep their ids."""
    spec = read(tmp_path, LEAST + "protocol: {neighbourhood: [0.10, 0.25, 0.35, 0.50]}\n")
    cells = planned(spec, ["a"]).cells
    assert [cell.protocol.neighbourhood for cell in cells] == [0.10, 0.25, 0.35, 0.50]
    assert len({cell.id for cell in cells}) == 4
    assert cells[0].title == "a gaussian_blur:5 seed 0 neighbourhood 0.1"


def test_the_example_is_a_sweep_as_it_is_and_with_every_comment_taken_out(tmp_path: Path) -> None:
    text = example(Path("mine.yaml"))
    spec = read(tmp_path, text)
    assert [str(shift) for shift in spec.shifts][:2] == [
        "gaussian_noise:0.02",
        "gaussian_noise:0.05",
    ]
    assert spec.groups[0].names[0].labels == ("run", "level")
    taken = re.sub(r"(?m)^( *)# ( *(?:- )?(?!anchors)[a-z_]+:(?: |$))", r"\1\2", text)
    assert len(taken) < len(text) - 30
    full = read(tmp_path, taken)
    assert full.seeds == (0, 1, 2)
    assert full.protocols[0].extra_horizons == (1, 2, 4)
    assert full.numeric_mode is NumericMode.FP32
    assert len(full.shifts) == 10


def _bomb(levels: int) -> str:
    """Lists of nine times the list before."""
    inner = "&l0 [1]"
    for level in range(levels):
        inner = f"&l{level + 1} [{inner}{f', *l{level}' * 8}]"
    return inner


REFUSED: list[tuple[str, int | None, str, str]] = [
    ("shift: [blur:5]", 4, "shift", "unknown key; did you mean 'shifts'? known keys: name, desc"),
    ("checkpoints: []", 1, "checkpoints", "found [], wanted a list with at least one item"),
    ("checkpoints: [3]", 1, "checkpoints[0]", "found 3, wanted a mapping with the keys name"),
    ("checkpoints: [{names: a}]", 1, "checkpoints[0].names", "did you mean 'name'?"),
    ("checkpoints: [{weights: w.pt}]", 1, "checkpoints[0]", "lacks the key name"),
    ("checkpoints: ['{a b}']", 1, "checkpoints[0]", "{a b} is no name for a label"),
    ("checkpoints: ['{a}/{a}']", 1, "checkpoints[0]", "{a} stands twice"),
    ("checkpoints: [{name: '{a}', labels: {a: 1}}]", 1, "checkpoints[0]", "a is a label here and"),
    ("checkpoints: [{name: a, labels: {a: [1]}}]", 1, "checkpoints[0].labels.a", "wanted text or"),
    ("checkpoints: [{name: a, labels: {a: .nan}}]", 1, "checkpoints[0].labels.a", "wanted text or"),
    ("checkpoints: [{name: a, labels: {a-b: 1}}]", 1, "checkpoints[0].labels.a-b", "underscores"),
    ("checkpoints: [{name: a, labels: {1: 1}}]", 1, "checkpoints[0].labels", "put it in quotes"),
    ("anchors: {dataset: a.h5}", 2, "anchors", "lacks the key task"),
    ("anchors: {set: 12345678}", 2, "anchors.set", "text; put it in quotes"),
    ("anchors: {set: DIGEST, count: 5}", 2, "anchors", "leave out count"),
    ("anchors: {upload: a.npz}", 2, "anchors.upload", "unknown key"),
    ("anchors: {dataset: a.h5, task: t, count: 1}", 2, "anchors.count", "found 1, wanted a whole"),
    ("shifts: blur", 3, "shifts", "found 'blur', wanted a list"),
    ("shifts: [fog]", 3, "shifts[0]", "no shift is called 'fog'"),
    ("shifts: [{fog: 1}]", 3, "shifts[0].fog", "no shift is called 'fog'"),
    ("shifts: [{fog: {x: 1}}]", 3, "shifts[0].fog", "found the kind 'fog'; wanted one of identity"),
    ("shifts: [{blur: 5, resize: 1}]", 3, "shifts[0]", "wanted one kind with its severities"),
    ("shifts: [{blur: 1.5}]", 3, "shifts[0].blur", "found 'blur:1.5'"),
    ("shifts: [{blur: [5, true]}]", 3, "shifts[0].blur[1]", "found True, wanted a severity"),
    ("shifts: [{resize: {scales: 1}}]", 3, "shifts[0].resize.scales", "did you mean 'scale'?"),
    ("shifts: [{motion_blur: {angle: 1}}]", 3, "shifts[0].motion_blur", "lacks the key length"),
    ("shifts: [{blur: {kernel_size: -1}}]", 3, "shifts[0].blur.kernel_size", "found -1, wanted a"),
    ("shifts: ['blur:5', {blur: 5}]", 3, "shifts[1]", "gaussian_blur:5 stands here a second time"),
    ("seeds: []", 4, "seeds", "a list with at least one item"),
    ("seeds: [1, 1]", 4, "seeds", "wanted every seed once"),
    ("seeds: [-1]", 4, "seeds[0]", "found -1, wanted a whole number from 0"),
    ("seeds: 1.5", 4, "seeds", "found 1.5, wanted a whole number"),
    ("protocol: {seed: 1}", 4, "protocol", "list the seeds under seeds"),
    ("protocol: letter", 4, "protocol", "server_default, paper, released"),
    ("protocol: {partner_past: both}", 4, "protocol.partner_past", "server_default, own, anchor"),
    ("protocol: {neighbourhood: [0.1, 0]}", 4, "protocol.neighbourhood", "numbers above 0"),
    ("protocol: {neighbourhood: []}", 4, "protocol.neighbourhood", "numbers above 0"),
    ("protocol: {draw: 1}", 4, "protocol.draw", "did you mean 'draws'?"),
    ("protocol: {draws: 0}", 4, "protocol.draws", "found 0, wanted a whole number from 1"),
    ("protocol: {quantile: 1.5}", 4, "protocol.quantile", "wanted a number in [0, 1]"),
    ("protocol: {margin: 1e-3}", 4, "protocol.margin", "YAML reads 1e-3 as text, write 1.0e-3"),
    ("evidence: {confidence: 1}", 4, "evidence.confidence", "wanted a number in (0.5, 1)"),
    ("evidence: {resamples: 200, confidence: 0.999}", 4, "evidence.resamples", "at least 2000"),
    ("evidence: {error_halflife: 0}", 4, "evidence.error_halflife", "a whole number from 1"),
    ("evidence: {population: all}", 4, "evidence.population", "server_default, dataset, traj"),
    ("evidence: 5", 4, "evidence", "found 5, wanted a mapping with the keys"),
    ("evidence: {error_halflife: yes}", 4, "evidence.error_halflife", "a whole number from 1"),
    ("gate: sure", 4, "gate", "wanted one of point, confident"),
    ("until_decided: 1", 4, "until_decided", "wanted a whole number from 2"),
    ("until_decided: soon", 4, "until_decided", "wanted a whole number from 2"),
    ("thresholds: {ir: .nan}", 4, "thresholds.ir", "found nan, wanted a number in (0, inf)"),
    ("numeric_mode: fp16", 4, "numeric_mode", "wanted one of server_default, fp32, tf32, bf16"),
    ("concurrency: 0", 4, "concurrency", "found 0, wanted a whole number from 1"),
    ("retries: yes", 4, "retries", "found True, wanted a whole number"),
    ("name: a/b", 4, "name", "wanted up to 100 letters"),
    ("description: 5", 4, "description", "wanted text; put it in quotes"),
    ("server: {target: a}", 4, "server", "unknown key"),
    ("seeds: 1\nseeds: 2", 5, "seeds", "stands here a second time"),
    ("seeds: [1", None, "", "is no YAML"),
    ("name: \0", None, "", "control characters are not allowed"),
    ("protocol: " + "{a: " * 30 + "1" + "}" * 30, None, "", "nested deeper than 20 levels"),
    ("protocol: " + "[" * 50_000, None, "", "nested deeper than 20 levels"),
    ("description: " + _bomb(6), None, "", "more than 100000 values"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "line", "path", "words"), REFUSED, ids=[r[0][:60] for r in REFUSED]
)
def test_a_mistake_is_named_with_its_line_its_place_and_the_fix(
    change: str, line: int | None, path: str, words: str, tmp_path: Path
) -> None:
    key = change.partition(":")[0]
    change = change.replace("DIGEST", "ab" * 32)
    lines = [change if kept.startswith(f"{key}:") else kept for kept in LEAST.splitlines()]
    if change not in lines:
        lines.append(change)
    with pytest.raises(SweepFileError) as refused:
        read(tmp_path, "\n".join(lines) + "\n")
    error = refused.value
    assert words in error.message and "\n" not in error.message and ": :" not in error.message
    assert error.path.startswith(path)
    if line is not None:
        assert (error.path, error.line) == (path, line)
        assert f"line {line}: {path}: " in error.message


@pytest.mark.parametrize("key", ["checkpoints", "shifts", "anchors"])
def test_what_a_sweep_cannot_do_without_is_asked_for(key: str, tmp_path: Path) -> None:
    rest = "\n".join(kept for kept in LEAST.splitlines() if not kept.startswith(key))
    with pytest.raises(SweepFileError, match=f"lacks (the key )?{key}"):
        read(tmp_path, rest)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SweepFileError, match="No such file"):
        Sweep.load(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SweepFileError, match=r"is no YAML|is not UTF-8"):
        Sweep.load(tmp_path / "bytes.yaml")


def test_plain_values_may_hold_the_records_themselves(tmp_path: Path) -> None:
    anchors, sure = {"dataset": "a.h5", "task": "t"}, EvidenceOptions(0.9)
    given = {"anchors": anchors, "checkpoints": ["a"], "shifts": ["blur:5"], "evidence": sure}
    spec = read_spec({**given, "thresholds": Thresholds(0.2)}, "records", tmp_path)
    assert (spec.evidence, spec.error_halflife, spec.thresholds.ir) == (sure, 100, 0.2)
