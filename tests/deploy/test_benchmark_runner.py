"""`make bench`: all benchmarks are in its table, a failed one costs only itself, a run goes on."""

import sys
from types import ModuleType

import pytest
from deployment_files import ROOT

FOLDER = ROOT / "benchmarks"
# Run by hand or by gpu-check, or a part of others.
APART = {"bare", "common", "device", "gpu_check", "load", "page", "run_all", "evidence"}


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> ModuleType:
    """The runner, with benchmarks that are told to fail instead of being run."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import run_all

    monkeypatch.setattr(run_all, "REPORTS", tmp_path / "reports")
    monkeypatch.setattr(run_all, "ENDED", tmp_path / "ended.json")
    monkeypatch.setattr(run_all, "find_programs", lambda: None)
    table = {
        "good": run_all.Benchmark(1),
        "bad": run_all.Benchmark(1),
        "long": run_all.Benchmark(30),
        "stored": run_all.Benchmark(1, postgres=True),
    }
    monkeypatch.setattr(run_all, "BENCHMARKS", table)
    return run_all


def _ran(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, bad: str, *options: str
) -> tuple[list[str], bool]:
    """What was run, and whether the whole ended well."""
    ran = []

    def run(name: str, *_: object) -> str:
        ran.append(name)
        return "exit code 3" if name == bad else ""

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(sys, "argv", ["run_all.py", *options])
    with pytest.raises(SystemExit) as ended:
        runner.main()
    return ran, not ended.value.code


def test_every_benchmark_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import run_all

    listed = {name.removesuffix(run_all.AVX2) for name in run_all.BENCHMARKS}
    assert {path.stem for path in FOLDER.glob("*.py")} - APART == listed


def test_one_that_fails_is_named_and_run_again_alone(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some = ("--only", "good,bad")
    assert _ran(runner, monkeypatch, "bad", *some) == (["good", "bad"], False)
    assert "bad: exit code 3" in capsys.readouterr().out
    assert _ran(runner, monkeypatch, "", *some) == (["bad"], True)
    assert _ran(runner, monkeypatch, "", *some) == ([], True)
    assert _ran(runner, monkeypatch, "", *some, "--again") == (["good", "bad"], True)


def test_none_is_started_that_has_no_time_or_no_database(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _ran(runner, monkeypatch, "", "--minutes", "10") == (["good", "bad"], False)
    said = capsys.readouterr().out
    assert "no PostgreSQL" in said.splitlines()[0]
    assert "long: no time left" in said
    assert "stored: needs PostgreSQL" in said


@pytest.mark.parametrize(
    ("least", "verdict"),
    [(3.9, "goal 3.8"), (3.0, "goal 3.8: not shown"), (None, "goal 5: missed")],
)
def test_a_goal_that_the_spread_crosses_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, least: float | None, verdict: str
) -> None:
    """By processor time, turn by turn: the clock, which others bend, only informs."""
    monkeypatch.syspath_prepend(str(FOLDER))
    from common import Spent, ratio
    from page import Figures

    turns = [(least or 4.0, 1.0), (4.1, 2.0), (4.2, 9.0)]
    found = ratio([Spent(*turn) for turn in turns], [Spent(1.0, 1.0)] * 3)
    text = Figures().vformat(f"{{0:.1f>={verdict.split()[1].strip(':')}}}", (found,), {})
    assert text == f"4.1 ({least or 4.0:.1f} to 4.2; on the clock 2.0; {verdict})"


def test_the_help_of_a_benchmark_says_what_its_options_mean(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from common import run

    def report(seconds: float = 6.0) -> dict[str, float]:
        """Parts of some seconds."""
        return {"seconds": seconds}

    with pytest.raises(SystemExit):
        run(report, ["--help"])
    told = capsys.readouterr().out
    assert "default: 6.0" in told
    assert "Parts of some seconds." in told
