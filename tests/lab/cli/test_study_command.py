"""``acpc study`` on rows: tables, bundles, verification and its exit codes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from acpc_client import (
    CemBudget,
    DestroyedActions,
    DriftStudy,
    GaussianBlur,
    GaussianNoise,
    GeometryStudy,
    PlannerStudy,
    Reading,
    ScoreProtocol,
    SensitivityStudy,
)
from acpc_command import Acpc, acpc_command
from acpc_lab.cli.study_options import asked_of, options_of, parameters_of
from acpc_lab.studies import STUDIES, AskScore, AskStudy
from result_documents import checked

WINDOW, RELEASED = DestroyedActions.WINDOW, Reading.RELEASED
SWEEP = """task,run,level,ir_rel,sr,success_noisy,success_clean
a,0,0,1,1,0,90
a,0,1,0.5,1,10,90
a,0,2,0.09,1,90,90
b,0,0,1,1,0,90
b,0,1,0.18,1,90,90
b,0,2,0.18,1,90,90
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The paper's pairs beside a bundle of them."""
    folder = tmp_path_factory.mktemp("bundle")
    pairs, bundle = folder / "pairs.csv", folder / "shifts"
    study = acpc_command("study")
    pairs.write_text(study("paper", "shifts").stdout)
    answer = study("shifts", pairs, "--out", bundle)
    for line in ("24  0.889      0.882   1.000", "12  0.875", "12  0.900"):
        assert line in answer.stdout
    assert answer.stdout.count("boundary") == 3  # two pairs and the column
    assert f"acpc study verify {bundle}" in answer.stderr
    return bundle


HORIZONS = "horizons --horizon 5 --quantile 0.8"


@pytest.mark.parametrize(
    ("study", "rows", "words"),
    [
        ("planner", "0,0 0,1", "run 0 has one task, a; the regression leaves one task out"),
        (HORIZONS, "0,0", "is 0 in every row; wanted an augmented level"),
        (HORIZONS, "0,0 1,1", "a, run 0, H 5, q 0.8: found 0 rows of level 1, wanted 1"),
    ],
)
def test_checkpoints_that_give_no_study_are_rejected_before_they_are_measured(
    acpc: Acpc, tmp_path: Path, study: str, rows: str, words: str
) -> None:
    listed, out = tmp_path / "checkpoints.csv", tmp_path / "out"
    lines = [f"a,{row},{name},a.h5,a\n" for row, name in zip(rows.split(), "xy", strict=False)]
    listed.write_text("task,run,level,checkpoint,dataset,preset\n" + "".join(lines))
    asked = ("--checkpoints", listed, "--out", out, "--timeout", 2)
    assert words in acpc("study", *study.split(), *asked, code=2).stderr
    assert not out.exists()


def test_directions_of_a_dataset_are_rejected_before_a_server_is_asked(
    acpc: Acpc, tmp_path: Path
) -> None:
    listed, out = tmp_path / "checkpoints.csv", tmp_path / "out"
    listed.write_text("task,run,checkpoint,dataset,preset\na,0,x,a.h5,a\n")
    given = "--checkpoints", listed, "--out", out, "--directions", "d", "--target", "127.0.0.1:9"
    told = acpc("study", "sensitivity", *given, "--timeout", 2, code=2).stderr
    assert "sensitivity.directions" in told
    assert "a dataset's anchors have no given directions" in told
    assert not out.exists()


@pytest.mark.process
def test_a_study_is_verified_and_drawn_again(acpc: Acpc, written: Path, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(written, tmp_path / "shifts"))
    assert acpc("study", "verify", bundle).stdout.startswith("OK:")
    before = {path: path.read_bytes() for path in bundle.glob("figures/*")}
    for path in before:
        path.unlink()
    acpc("study", "verify", bundle, code=1)
    acpc("study", "plot", bundle)
    assert {path: path.read_bytes() for path in bundle.glob("figures/*")} == before
    summary = (bundle / "summary.json").read_text()
    (bundle / "summary.json").write_text(summary.replace("0.8888", "0.9888"))
    answer = acpc("study", "verify", bundle, "--json", code=1)
    assert "first difference: summary.json has the SHA-256" in answer.stderr
    assert json.loads(answer.stdout)["difference"].startswith("summary.json")


@pytest.mark.process
def test_a_bundle_takes_the_thresholds_of_another(
    acpc: Acpc, written: Path, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.csv"
    sweep, chosen, out = tmp_path / "sweep.csv", tmp_path / "thresholds", tmp_path / "out"
    sweep.write_text(SWEEP)
    answer = acpc("study", "thresholds", sweep, "--out", chosen)
    assert "b            0.0%   90.0  90.0%   1 " in answer.stdout
    assert " 1-2\n" in answer.stdout
    header, _, rest = written.with_name("pairs.csv").read_text().partition("\n")
    pairs.write_text(f"{header}\n" + rest.replace("TwoRoom", "a").splitlines()[0] + "\n")
    answer = acpc("study", "shifts", pairs, "--thresholds-from", chosen, "--out", out, "--json")
    assert "a,3072,blur,0.499,0.885,55.7,0.2,0.95" in (out / "rows.csv").read_text()
    (pair,) = checked(answer.stdout)["answer"]["pairs"]
    assert checked((out / "summary.json").read_text())["request"]["study"] == "shifts"
    assert pair["reference_score"] == pytest.approx((0.2 - 1) / 0.2)
    manifest = json.loads((out / "study.json").read_text())
    assert [source["kind"] for source in manifest["sources"]] == ["file", "study", "computed"]
    acpc("study", "verify", out)


def test_a_study_of_checkpoints_takes_rows_without_a_server(acpc: Acpc, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(acpc("study", "paper", "collapse").stdout)
    answer = acpc("study", "collapse", "--rows", rows, "--target", "nowhere:1")
    assert "raw IR alone prefers 0, which has collapsed" in answer.stdout


CEM = CemBudget(12, 4, 2, 3)


@pytest.mark.parametrize(
    ("name", "given", "asked", "parameters"),
    [
        ("drift", {}, AskStudy(DriftStudy()), {"alpha": 1.0}),
        (
            "drift",
            {"shifts": ["blur:5,15"], "groups": 4, "destroyed": WINDOW, "alpha": 2.0},
            AskStudy(
                DriftStudy((GaussianBlur(5), GaussianBlur(15)), groups=4, destroyed=WINDOW)
            ),
            {"alpha": 2.0},
        ),
        (
            "planner",
            {"candidates": 12, "elites": 4, "iterations": 2, "horizon": 3, "reading": RELEASED},
            AskStudy(PlannerStudy(budget=CEM, reading=RELEASED)),
            {"alpha": 1.0, "reading": "released", "pool": "first", "distance": "displacement"},
        ),
        (
            "geometry",
            {"motion": True, "seed": 3, "tsne_seed": 7, "highlighted": 2},
            AskStudy(GeometryStudy(motion=True, seed=3)),
            {"highlighted": 2, "perplexity": 30.0, "tsne_seed": 7, "envelope": 0.9},
        ),
        ("sensitivity", {"probes": 3}, AskStudy(SensitivityStudy(probes=3)), {}),
        (
            "horizons",
            {"shift": "blur:5", "horizon": 4, "extra_horizons": (1, 2)},
            AskScore(
                GaussianBlur(5),
                ScoreProtocol(horizon=4, extra_horizons=(1, 2), extra_quantiles=(0.8, 0.95)),
            ),
            {"horizon": 4, "quantile": 0.9},
        ),
        (
            "collapse",
            {"draws": 2, "distance_share": 0.1},
            AskScore(GaussianNoise(0.005), ScoreProtocol(draws=2)),
            {"distance_share": 0.1},
        ),
    ],
)  # fmt: skip
def test_options_reach_the_request_and_the_parameters(
    name: str, given: dict[str, Any], asked: object, parameters: dict[str, Any]
) -> None:
    """An option that was not given leaves the study's own; one that both have is in both."""
    options = options_of(STUDIES[name])(**given)
    assert asked_of(STUDIES[name], options) == asked
    assert parameters_of(STUDIES[name], options).to_dict() == parameters


def test_a_missing_onset_is_a_word_or_a_number() -> None:
    study = STUDIES["thresholds"]
    for text, found in (("past", "past"), ("0.5", 0.5)):
        options = options_of(study)(reading="released", no_onset=text, ir_grid=(0.1,))
        made = parameters_of(study, options).to_dict()
        assert (made["no_onset"], made["ties"], made["ir_grid"]) == (found, "checkpoints", (0.1,))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["shifts", "BAD", "--out", "TAKEN"], 2, "holds a study already"),
        (["shifts", "BAD"], 2, "line 2, column ir_rel: found 'x'"),
        (["thresholds", "SWEEP", "--t-ir", "a"], 2, "wanted numbers like"),
        (["thresholds", "SWEEP", "--t-sr", "2"], 2, "sr_grid"),
        (["verify", "EMPTY"], 2, "is no manifest of a study"),
        (["plot", "EMPTY"], 2, "is no manifest of a study"),
        (["paper", "drift"], 2, "wanted one of shifts, collapse"),
        (["drift"], 2, "found neither --checkpoints and --rows"),
        (["drift", "--rows", "BAD", "--checkpoints", "BAD"], 2, "found both"),
        (["drift", "--checkpoints", "CELLS"], 2, "--out"),
        (["drift", "--checkpoints", "CELLS", "--out", "NEW"], 2, "row 2: found neither dataset"),
        (["horizons", "--rows", "BAD", "--more-horizons", "1,x"], 2, "wanted numbers like"),
    ],
)
def test_wrong_usage_is_refused(
    acpc: Acpc, tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    for folder in ("empty", "taken"):
        (tmp_path / folder).mkdir()
    (tmp_path / "taken" / "study.json").touch()
    for name, content in {
        "bad.csv": "task,run,shift,ir_rel,sr,success_gain\na,0,blur,x,1,1\n",
        "sweep.csv": SWEEP,
        "cells.csv": "task,run,checkpoint,dataset,preset\na,0,c,d,p\na,1,c,,p\n",
    }.items():
        (tmp_path / name).write_text(content)
    places = {
        "TAKEN": tmp_path / "taken", "EMPTY": tmp_path / "empty", "NEW": tmp_path / "new",
        "BAD": tmp_path / "bad.csv", "SWEEP": tmp_path / "sweep.csv",
        "CELLS": tmp_path / "cells.csv",
    }  # fmt: skip
    answer = acpc("study", *(places.get(item, item) for item in arguments), code=code)
    assert words in answer.stderr


@pytest.mark.parametrize("name", STUDIES)
def test_help_tells_question_columns_and_an_example(acpc: Acpc, name: str) -> None:
    answer = acpc("study", name, "--help")
    for word in ("Columns", "task", f"acpc study {name}", "?"):
        assert word in answer.stdout


def test_help_tells_that_the_time_is_for_all_checkpoints_together(acpc: Acpc) -> None:
    shown = " ".join(acpc("study", "drift", "--help-all").stdout.replace("│", " ").split())
    assert "where the command waits for jobs, of the wait for all" in shown
