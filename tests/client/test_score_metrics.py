"""``Score.metrics()``, and the recipes for experiment trackers, as the page has them."""

import math
import re
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from acpc.contract import Score
from acpc_client import save_result
from processes import run
from report_samples import judged, side

PAGE = Path(__file__).parents[2] / "docs/results.md"
SECTION = PAGE.read_text().split("\n## Numbers for an experiment tracker\n")[1].split("\n## ")[0]
RECIPES = {
    name: code
    for code in re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    for name in ("wandb", "mlflow", "tensorboard")
    if name in code
}
BEFORE = 'from acpc_client import load_result\nscore, epoch = load_result("score.npz").answer, 3\n'
ENDS = {f"{name}_{end}" for name in ("sr", "ir_relative", "score") for end in ("lower", "upper")}


@pytest.fixture
def score() -> Score:
    return judged(side("two-a", 0.2, 50.0), side("two-base", 1.0, 50.0), sure=True)


def test_names_stay_and_numbers_are_those_of_the_score(score: Score) -> None:
    found = score.metrics()
    assert {"ir", "sr", "ir_relative", "score", "passed", "confidence", *ENDS} <= {*found}
    assert (found["ir"], found["sr"]) == (score.checkpoint.ir_raw, score.checkpoint.sr)
    assert (found["ir_relative"], found["score"]) == (
        score.verdict.ir_relative,
        score.verdict.score,
    )
    assert found["passed"] == 1.0
    assert score.evidence is not None and score.evidence.sr is not None
    assert found["sr_lower"] == score.evidence.sr.lower


def test_what_is_unknown_or_not_finite_is_left_out(score: Score) -> None:
    assert score.evidence is not None and score.evidence.sr is not None
    open_ended = replace(score.evidence, sr=replace(score.evidence.sr, upper=math.inf))
    found = replace(score, evidence=open_ended).metrics()
    assert "sr_lower" in found and "sr_upper" not in found
    verdict = replace(score.verdict, ir_relative=None, score=None)
    alone = replace(score, reference=None, verdict=verdict, evidence=None)
    unknown = {"ir_relative", "score", "passed", "confidence", "ir_lower", *ENDS}
    assert {"ir", "sr"} <= {*alone.metrics()} <= {*score.metrics()} - unknown


@pytest.mark.process  # loading a tracker takes seconds
@pytest.mark.parametrize("tracker", ["wandb", "mlflow", "tensorboard"])
def test_the_recipe_of_a_tracker_runs(
    tracker: str, score: Score, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec(tracker) is None:
        pytest.skip(f"{tracker} is not installed")
    code = RECIPES[tracker]
    assert len(code.strip().splitlines()) <= 8
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    save_result(score, tmp_path / "score.npz")
    run([sys.executable, "-c", BEFORE + code], cwd=tmp_path)
    written = {
        "wandb": "wandb/offline-run-*/*.wandb",
        "mlflow": "mlruns/*/*/metrics/sr",
        "tensorboard": "runs/lewm-tworooms/events*",
    }
    (file,) = tmp_path.glob(written[tracker])
    assert (
        b"sr" if tracker != "mlflow" else f"{score.checkpoint.sr} 3".encode()
    ) in file.read_bytes()
