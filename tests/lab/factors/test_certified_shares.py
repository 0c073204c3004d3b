"""Certified fractions: which study is asked, how its rows are counted, and what the file holds."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from acpc.contract import AnchorArray, AnchorSet, NumericMode, PlannerStudy
from acpc_client.errors import ArgumentError
from acpc_lab.factors import (
    CertifiedShare,
    certified_shares,
    certified_study,
    read_certified,
    write_certified,
)

ARRAYS = {"views/light:0.5": 3, "views/light:1": 2, "proprio": 7}
STORED = AnchorSet(
    *("5e7", 4, 2, 3, 8, 8, 2, 1, 100, None, None, "", None),
    extras=tuple(AnchorArray(name, "uint8", (count,), name) for name, count in ARRAYS.items()),
)
ROW = CertifiedShare("a,b", "given_views:light:1", 3, 4, 2, "c", "s", "v", "{}", "1", "fp32", "cpu")


class Server:
    """Answers a study: under the second shift one view of anchor 7 and two of 9 change the plan."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def run_study(self, *asked: Any, request_id: str) -> Any:  # noqa: ANN401
        self.asked.append((*asked, request_id))
        anchor, shift, draw = (x.ravel() for x in np.meshgrid([7, 8, 9, 6], [0, 1], [0, 1]))
        broken = (shift == 1) & ((anchor == 9) | ((anchor == 7) & (draw == 1)))
        columns = {"anchor": anchor, "shift": shift, "draw": draw, "certified": ~broken}
        receipt = SimpleNamespace(
            checkpoint_digest="c", anchors_digest="5e7", code_version="1", device="cpu",
            numeric_mode=NumericMode.FP32,
            parameters={"given_views": {"light:0.5": "d0", "light:1": "d1"}, "sampling_seed": 4},
        )  # fmt: skip
        return SimpleNamespace(result=lambda: SimpleNamespace(columns=columns, receipt=receipt))


def test_an_anchor_counts_where_every_view_of_the_group_is_certified() -> None:
    server: Any = Server()
    weak, strong = certified_shares(server, "a", STORED)
    assert (weak.shift, weak.certified, weak.views_digest) == ("given_views:light:0.5", 4, "d0")
    assert (strong.shift, strong.certified, strong.views_digest) == ("given_views:light:1", 2, "d1")
    assert (strong.checkpoint, strong.anchors, strong.draws) == ("a", 4, 2)
    assert (strong.checkpoint_digest, strong.anchors_digest) == ("c", "5e7")
    assert '"sampling_seed": 4' in strong.parameters
    assert "server 1" in strong.source


def test_the_same_question_is_the_same_job_and_another_one_is_another() -> None:
    server: Any = Server()
    studies = [None, None, certified_study(STORED, seed=1), certified_study(STORED, candidates=9)]
    for study in studies:
        certified_shares(server, "a", STORED, study)
    certified_shares(server, "b", STORED)
    identities = [asked[-1] for asked in server.asked]
    assert identities[0] == identities[1]
    assert len(set(identities)) == 4
    study: PlannerStudy = server.asked[0][2]
    assert (study.draws, study.budget.iterations, study.budget.horizon) == (2, 1, 3)
    assert [str(shift) for shift in study.shifts] == [
        "given_views:light:0.5", "given_views:light:1",
    ]  # fmt: skip
    with pytest.raises(ArgumentError, match="no group of views"):
        certified_study(replace(STORED, extras=()))


def test_the_file_gives_back_its_rows(tmp_path: Path) -> None:
    rows = [ROW, replace(ROW, checkpoint="c", certified=0, parameters='{"a": [1, 2]}')]
    write_certified(tmp_path / "certified.csv", rows)
    assert read_certified(tmp_path / "certified.csv") == rows


HEAD, LINE = "checkpoint,shift,certified,anchors,draws", "checkpoint_digest,anchors_digest"
HEAD = f"{HEAD},{LINE},views_digest,parameters,code_version,numeric_mode,device\n"


@pytest.mark.parametrize(
    "text",
    ["", "checkpoint,shift\n", f"{HEAD}a,b,c,4,1,,,,,,,\n", f"{HEAD}a,b,5,4,1,,,,,,,\n",
     f"{HEAD}a,b\n", f"{HEAD}a,b,1,4,1,,,,,,,,too many\n",
     "checkpoint,shift,certified,anchors\na,b,1,4\n"],
)  # fmt: skip
def test_another_file_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=r"certified: .*wanted a CSV file with the columns"):
        read_certified(path)
    with pytest.raises(ArgumentError, match="No such file"):
        read_certified(tmp_path / "none.csv")
