"""The demo of studies: what nothing puts to the test is not said to hold."""

import sys

import processes
from example_scripts import EXAMPLES

CODE = """
from acpc_lab.studies.statistics import Spread
from acpc_lab.studies.planner import PlannerSummary
from study_demo import SHOWN, planner_findings
for certified, broken in ((0.0, 0), (0.25, 0), (0.25, 2)):
    found = PlannerSummary((), (), Spread(0.05, 0.01), 4, 576, 0.9, certified, broken, 0.2, 1, 0)
    print(*(SHOWN[one.holds] for one in planner_findings(found)), sep=", ")
"""


def test_a_claim_about_certified_runs_is_not_tested_without_any() -> None:
    ended = processes.run([sys.executable, "-c", CODE], cwd=EXAMPLES)
    holds, fails = "[green]holds[/green]", "[yellow]does not[/yellow]"
    assert ended.stdout.splitlines() == [
        f"{holds}, not tested", f"{holds}, {holds}", f"{holds}, {fails}"
    ]  # fmt: skip
