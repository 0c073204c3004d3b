"""A table of commands: what the server does, the exit code, and what is printed where.

Every row is run as a user types it, in a folder with the files that rows name. Words of a row must
be printed, in any order; what begins with ``^`` must begin a line.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anchor_wire
import grpc
import h5py
import numpy as np
import pytest
import yaml
from acpc.v1 import scoring_service_pb2 as pb
from acpc_command import Acpc
from client_fixtures import BLOCKS, HISTORY
from client_messages import operation, score_response, status
from google.rpc import error_details_pb2
from job_counterparty import DOCUMENT
from result_documents import checked
from score_scripts import NAME, SCORE, UNDECIDED, ended

PASSED, FAILED = pb.OUTCOME_PASSED, pb.OUTCOME_FAILED
OPEN, BARE, NONE = pb.OUTCOME_UNDECIDED, pb.OUTCOME_INCONCLUSIVE, pb.OUTCOME_UNSPECIFIED
UNFIT = pb.OUTCOME_DOES_NOT_FIT
ASK = shlex.join(SCORE)
WATCH = "show job mine --wait"
CERTIFY = "certify a --input pool.npz"
COMPARE = "compare a --shift identity --input"
HORIZONS = "run horizons --protocol '{horizon: 5, quantile: 0.8}' --checkpoints"
BROKE = status(grpc.StatusCode.INTERNAL, "it broke")
GONE = status(grpc.StatusCode.CANCELLED, "withdrawn")
REFUSED = status(
    grpc.StatusCode.INVALID_ARGUMENT,
    "the request cannot work",
    error_details_pb2.BadRequest(field_violations=[{"field": "dataset.task", "description": "no"}]),
    error_details_pb2.ErrorInfo(reason="WEIGHTS_AMBIGUOUS"),
)


class Row(NamedTuple):
    """A command; ``script`` is what its job goes through, or how its submission is refused.

    ``case`` is the one of its JUnit file; its element follows from the exit code.
    """

    argv: str
    code: int = 0
    out: tuple[str, ...] = ()
    err: tuple[str, ...] = ()
    script: Any = ()
    case: str = ""


ELEMENTS = {0: "<system-out>", 1: "<error ", 3: "<failure ", 4: "<error ", 5: "<skipped "}


def gates() -> Iterator[Row]:
    """A score under either gate."""
    for command, case in ((ASK, "trained under gaussian_noise:0.08"), (WATCH, "trained")):
        for outcome, confident, point, sure in (
            (PASSED, PASSED, 0, 0),
            (PASSED, OPEN, 0, 5),
            (FAILED, OPEN, 3, 5),
            (FAILED, FAILED, 3, 3),
            (BARE, BARE, 0, 5),
            (BARE, OPEN, 0, 5),
            (UNFIT, UNFIT, 3, 3),
            (PASSED, NONE, 0, 1),
            (PASSED, None, 0, 1),
        ):
            script, written = [ended(outcome, confident)], "" if confident is None else case
            yield Row(command, point, script=script, case=case)
            yield Row(f"{command} --gate confident", sure, script=script, case=written)
        for code, words, answer in (
            (3, "", {"response": score_response(BARE, with_reference=False, sr_passed=False)}),
            (1, "", {"response": score_response(NONE)}),
            (4, "INTERNAL: it broke", {"error": BROKE}),
            (4, "CANCELLED", {"error": GONE}),
        ):
            yield Row(command, code, err=(words,), script=[operation(NAME, 4, **answer)], case=case)


def floored(floor: float | None) -> list[Any]:
    return [operation(NAME, 4, response=score_response(PASSED, rounding_floor=floor))]


NEAR = (
    "warning: raw IR 0.5 of trained is within 10 rounding floors (0.06): rounding may move "
    "it by 0.0006; numeric mode fp64 gives its digits"
)
SHOWN = [
    Row(
        f"{ASK} --gate confident", 5, script=[ended(PASSED, OPEN, **UNDECIDED)],
        out=("^PASSED: what decided the outcome",
             "^how sure: undecided: 2 anchors are too few, about 240 would probably",
             "the doubt is in SR", "95 % interval", "0.1 to 0.15", "0.93 to 0.99", "0.4 to 0.6",
             "(reference)"),
        err=("warning: 2 anchors are eligible, fewer than 30", f"{NAME}: submitted",
             "encoding anchors 4/4, 1 min 15 s left"),
    ),
    Row(f"{ASK} --gate confident", 1, out=("^PASSED: ",), script=[ended(PASSED, None)],
        err=("error: FAILED_PRECONDITION: this score has no evidence of how sure it is",)),
    Row(f"{ASK} --gate confident", 5, script=[ended(BARE, BARE)],
        err=("undecided: nothing passes without a reference; name one",)),
    Row(f"{ASK} -o wide", out=("rounding floor", "0.0021", "eligible"),
        script=floored(0.0021)),
    Row(f"{ASK} -o wide", out=("0.06", NEAR), script=floored(0.06)),
    Row(ASK, 1, script=REFUSED, err=(
        "^error: INVALID_ARGUMENT: the request cannot work", "^  dataset.task: no",
        "^  name one after the checkpoint: NAME:FILE",
        "^  request id: mine")),
    Row("show job mine", out=("^PASSED: what decided", "^how sure: passes; 95 % sure"),
        script=[ended(PASSED, PASSED)]),
    Row("show job 7", out=("^state               running 0/4", "encoding anchors")),
    Row("show job mine -o csv", out=("^relative IR,", "^raw IR,"), err=("PASSED: what decided",),
        script=[ended(PASSED, PASSED)]),
    Row("limit trained --reference plain --anchor-set d --shift blur:3,5", 4,
        err=("^error: INTERNAL: it broke",), script=[operation(NAME, error=BROKE)]),
    Row("check-fit trained --anchor-set d", 4, err=("^error: INTERNAL: it broke",),
        script=[operation(NAME, error=BROKE)]),
    Row("show job mine --out score.json", 4, err=("^error: INTERNAL: it broke",),
        script=[operation(NAME, error=BROKE)]),
    Row("show job mine --out score.npz", 1, err=("has not ended",), script=[operation(NAME, 1)]),
    Row("show job mine", out=("caller", "ann"), script=[operation(NAME, 1, caller="ann")]),
    Row("score --help",
        out=("protocol.neighbourhood: ", "thresholds.ir: ", "anchors.frameskip: ")),
    Row("list jobs --filter state=running", out=("operations/first", "operations/second")),
    Row("cancel 7", out=("operations/7: cancellation requested",)),
    Row("cancel latest", out=(f"^{NAME}: has ended already: succeeded",),
        script=[ended(PASSED, PASSED)] * 2),
    Row("delete job operations/7", out=("operations/7: deleted",)),
    *(Row(argv, out=("one", "two", "three")) for argv in (
        "list checkpoints", "--target @here list checkpoints",
        "--target @nowhere list checkpoints --target @here",
    )),
    Row("--target @nowhere list checkpoints", 1,
        err=("^error: UNAVAILABLE: ", "no server answers at @nowhere")),
    Row("compare a --input pair.npz --shift gaussian_noise:0.08 --shift blur:15 --draws 2",
        out=("drift bound", "^gaussian_noise:0.08", "^gaussian_blur:15")),
    Row("compare a --input pair.npz --shift resize:0.25 -o json",
        out=('"kind": "resize"', '"device": "cpu"')),
    Row("show checkpoint one", out=("available",)),
    Row("load one:w.pt --pin", out=("loaded, pinned", "d" * 64)),
    Row("load one --unload -o json", out=('"model": null',)),
]  # fmt: skip

ALONE = "give it alone, without how anchors are drawn: a set has its anchors already"
SOURCES = {
    "": "give --dataset and --task (acpc list datasets, acpc list tasks), or --anchor-set alone",
    "--dataset a.h5": "give --task too: acpc list tasks shows presets",
    "--task pusht": "give --dataset too: acpc list datasets shows",
    "--anchor-set d --dataset a.h5 --task pusht": ALONE,
    "--anchor-set d --anchors 50": ALONE,
}
WRONG = [
    *(Row(f"score a --shift blur:15 {source}", 2, err=(words,))
      for source, words in SOURCES.items()),
    Row(f"{ASK.replace('gaussian_noise:0.08', 'everyday')} --out one.json", 2,
        err=("holds one score; name one shift",)),
    Row(f"{ASK} --no-wait --junit gate.xml", 2, err=("it needs a verdict; leave out --no-wait",)),
    Row(f"{ASK} --junit no/gate.xml", 2, err=("the folder no does not exist",)),
    *(Row(f"{ASK} -o json {option} /proc/{name}", 2, err=(f"cannot write /proc/{name}",),
          script=[ended(PASSED, PASSED)])  # nobody may write there, nor root
      for option, name in (("--junit", "gate.xml"), ("--out", "score.json"))),
    *(Row(f"{CERTIFY} {option}", 2, err=(option.split()[0], words)) for option, words in (
        ("--shift gaussian_noise:0.02,", "wanted gaussian"),
        ("--shift gaussian_noise:a,b", "wanted gaussian"),
        ("--shift blur:15,1.5", "wanted gaussian"),
        ("--require elite --shift blur:15", "--elites above 0"),
        ("--protocol '{cost_reduction: max}'", "sum, mean"),
        ("--protocol '{numeric_mode: fp8}'", "fp32, tf32, bf16"),
        ("--protocol '{weights: [1, x]}'", "weights[1]: found 'x'"),
        ("--protocol '{temprature: 1}'", "unknown key; did you mean 'temperature'?"),
        ("--protocol absent.yaml", "cannot read absent.yaml"),
        ("--elites -1", "Invalid value"),
    )),
    Row(f"{COMPARE} views.npz", 2, err=("both --shift and an array views",)),
    Row(f"{COMPARE} history.npz", 2, err=("missing action_blocks",)),
    Row(f"{COMPARE} extra.npz", 2, err=("unknown extra",)),
    Row(f"{COMPARE} objects.npz", 2, err=("plain arrays",)),
    Row(f"{COMPARE} float64.npz", 2, err=("float64",)),
    Row(f"{COMPARE} damaged.npz", 2, err=("damaged.npz: is a damaged NPZ file",)),
    Row("verify empty", 2, err=("empty holds no study; verify takes a study's folder",)),
    Row("verify history.npz", 2, err=("holds no result",)),
    Row("judge history.npz", 2, err=("holds no result",)),
    *(Row(f"study {argv}", 2, err=(words,)) for argv, words in (
        ("run shifts --rows bad.csv --out taken", "holds a study already"),
        ("run shifts --rows bad.csv", "line 2, column ir_rel: found 'x'"),
        ("run thresholds --rows sweep.csv --protocol '{ir_grid: [a]}'", "ir_grid"),
        ("run thresholds --rows sweep.csv --protocol '{sr_grid: [2]}'", "sr_grid"),
        ("plot empty", "is no manifest of a study"),
        ("run drift --rows paper", "the paper prints the rows of shifts, collapse alone"),
        ("run drfit", "wanted one of thresholds, shifts, drift"),
        ("run drift", "give --rows or --checkpoints"),
        ("run drift --rows bad.csv --checkpoints bad.csv", "give --rows or --checkpoints"),
        ("run drift --checkpoints cells.csv", "--out"),
        ("run drift --checkpoints cells.csv --out new", "row 2: found neither dataset"),
        ("run horizons --rows bad.csv --protocol '{extra_horizons: [x]}'", "extra_horizons[0]"),
        ("run planner --checkpoints pair.csv --out new",
         "run 0 has one task, a; the regression leaves one task out"),
        (f"{HORIZONS} flat.csv --out new", "is 0 in every row; wanted an augmented level"),
        (f"{HORIZONS} apart.csv --out new",
         "a, run 0, H 5, q 0.8: found 0 rows of level 1, wanted 1"),
    )),
    *(Row(f"anchors upload {argv}", 2, err=(words,)) for argv, words in (
        ("gone.h5", "gone.h5: is not here; of a dataset at the server: acpc anchors create"),
        ("rooms.h5", "task: 'rooms.h5' is a hdf5 dataset; say how to read it: --task with"),
        ("rooms.h5 --task twoorm",
         "'twoorm' is no preset, and no file: No such file or directory; did you mean 'tworoom'?"),
        ("rooms.h5 --task tworoom", "count: is 100, but the dataset has only 0 windows"),
        ("rooms.h5 --task tworoom --format csv", "found 'csv'; wanted one of"),
        ("windows.npz --anchors 3", "count: is for datasets, but 'windows.npz' holds arrays"),
    )),
    Row("anchors upload empty", 1, err=("dataset 'empty' is not HDF5 or Lance; `swm convert",)),
    *(Row(f"config set {word}", 2, err=(said,)) for word, said in (
        ("tagret=a:1", "did you mean 'target'?"),
        ("token_file=absent", "there is no file"),
        ("timeout=soon", "wanted seconds"),
        ("insecure=perhaps", "wanted true or false"),
    )),
    *(Row(argv, 2, err=(meant,)) for argv, meant in (
        ("scroe", "'score'"),
        ("sweep run gate.yaml --watch --submit-only", "exclude each other"),
        ("sweep run gate.yaml --submit-only --junit b.xml", "exclude each other"),
        ("sweep show gate.yaml --offline", "has not been run yet"),
        ("sweep show gate.yaml -o json --anchors", "is for -o csv and --out"),
        ("sweep run wrong.yaml", "did you mean 'shifts'?"),
    )),
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder() -> None:
    """Goes where the files of the rows lie."""
    pair = {"history": HISTORY, "action_blocks": BLOCKS, "observed_future": HISTORY[:2]}
    pool = {"history": HISTORY, "candidates": np.ones((5, 3, 2), np.float32), "goal": HISTORY[0]}
    for name, arrays in {
        "pool": pool,
        "pair": pair,
        "views": {**pair, "views": HISTORY[None]},
        "windows": {"history": np.array(2), **anchor_wire.anchor_arrays()},
        "history": {"history": np.zeros(3)},
        "extra": {**pair, "extra": np.zeros(1)},
        "objects": {**pair, "history": np.array([{}])},
        "float64": {**pair, "history": np.zeros((3, 4, 5, 3))},
        "damaged": pool,
    }.items():
        np.savez(name, **arrays)
    damaged = Path("damaged.npz")
    damaged.write_bytes(damaged.read_bytes()[:-10])
    for name in ("empty", "taken"):
        Path(name).mkdir()
    Path("taken/study.json").touch()
    with h5py.File("rooms.h5", "w") as file:
        file["ep_len"], file["ep_offset"] = [20, 15], [0, 20]
        file["action"] = file["pos_agent"] = np.zeros((35, 2))
        file["pixels"] = np.zeros((35, 8, 8, 3), np.uint8)
    for name, keys in {"gate": DOCUMENT, "wrong": {"shift": []}}.items():
        Path(f"{name}.yaml").write_text(yaml.safe_dump(keys))
    sweep = "".join(f"a,0,{level},1,1,0,90\n" for level in range(3))
    columns = "task,run,level,checkpoint,dataset,preset\n"
    for name, text in {
        "bad": "task,run,shift,ir_rel,sr,success_gain\na,0,blur,x,1,1\n",
        "sweep": f"task,run,level,ir_rel,sr,success_noisy,success_clean\n{sweep}",
        "cells": "task,run,checkpoint,dataset,preset\na,0,c,d,p\na,1,c,,p\n",
        "pair": f"{columns}a,0,0,x,a.h5,a\na,0,1,y,a.h5,a\n",
        "flat": f"{columns}a,0,0,x,a.h5,a\n",
        "apart": f"{columns}a,0,0,x,a.h5,a\na,1,1,y,a.h5,a\n",
    }.items():
        Path(f"{name}.csv").write_text(text)


def printed(wanted: tuple[str, ...], shown: str) -> list[str]:
    """The words that are missing."""
    flat = " ".join(re.sub("[│╭╮╰╯─]", " ", shown).split())

    def is_there(words: str) -> bool:
        if words.startswith("^"):
            return any(line.startswith(words[1:]) for line in shown.splitlines())
        return words in flat

    return [words for words in wanted if not is_there(words)]


@pytest.mark.parametrize(
    "row", [*gates(), *SHOWN, *WRONG], ids=lambda row: f"{row.argv} {row.code}"
)
def test_a_command(row: Row, acpc: Acpc, target: str, unused_target: str) -> None:
    def filled(text: str) -> str:
        return text.replace("@here", target).replace("@nowhere", unused_target)

    if isinstance(row.script, type(REFUSED)):
        acpc.server.refusals["ScoreCheckpoint"].append(row.script)
    else:
        acpc.server.script.extend(row.script)
    junit = ("--junit", "gate.xml") if row.case else ()
    answer = acpc(*shlex.split(filled(row.argv)), *junit, code=row.code)
    if row.case:
        written = Path("gate.xml").read_text()
        assert f'name="{row.case}"' in written and ELEMENTS[row.code] in written
    assert printed(row.out, answer.stdout) == []
    assert printed(tuple(map(filled, row.err)), answer.stderr) == []
    assert row.code != 2 or (not acpc.server.requests and not Path("new").exists())
    if "-o json" in row.argv and "compare" in row.argv:
        checked(answer.stdout)
    assert row.code != 2 or "-o json" not in row.argv or answer.stdout == ""


def test_the_verdict_is_the_first_line_and_what_was_asked_stands_above_the_numbers(
    acpc: Acpc,
) -> None:
    asked = pb.ScoreCheckpointRequest(
        checkpoint={"name": "trained"}, reference={"name": "plain"},
        dataset={"dataset": "rooms.h5", "task": "tworoom"},
        perturbation={"gaussian_noise": {"sigma": 0.08}},
    )  # fmt: skip
    response = score_response(PASSED)
    acpc.server.script.append(operation(NAME, 4, response=response, request=asked))
    lines = acpc(*SCORE).stdout.splitlines()
    assert lines[0] == "PASSED: what decided the outcome"
    assert lines[1] == (
        "asked: trained against plain under gaussian_noise:0.08, on rooms.h5, task tworoom"
    )
    assert sum("PASSED" in line for line in lines) == 1


def test_json_has_the_whole_evidence_and_a_file_the_anchors_too(acpc: Acpc) -> None:
    file = Path("score.json")
    shown = []
    for more in ([], ["--out", file]):
        acpc.server.script.append(ended(PASSED, OPEN, **UNDECIDED))
        answer = acpc(*SCORE, "--gate", "confident", "-o", "json", *more, code=5)
        shown.append(checked(answer.stdout)["answer"])
    evidence = shown[0]["evidence"]
    assert (evidence["confident_outcome"], evidence["doubt"]) == ("undecided", "sr")
    assert evidence["notes"] == ["2 anchors are eligible, fewer than 30"]
    assert "anchor_values" not in shown[0]["checkpoint"]
    whole = checked(file.read_text())["answer"]
    assert whole["checkpoint"]["anchor_values"]["anchor_ids"] == [7, 11]


@pytest.mark.parametrize(("outcomes", "code"), [((PASSED, FAILED), 3), ((PASSED, PASSED), 0)])
def test_a_grid_of_shifts_is_one_table_of_jobs(
    outcomes: tuple[int, int], code: int, acpc: Acpc
) -> None:
    acpc.server.script += [ended(one, one) for one in outcomes]
    answer = acpc(*SCORE[:-4], "--shift", "blur:5,9", "--request-id", "mine", code=code)
    assert "Of 2 measurements" in " ".join(answer.stdout.split())
    asked = acpc.server.requests["ScoreCheckpoint"]
    assert [call.request_id for call in asked] == ["mine-0", "mine-1"]


def test_a_limit_finds_the_jobs_that_an_earlier_release_submitted(acpc: Acpc) -> None:
    for more in ("", " --population dataset"):
        acpc.server.script.append(operation(NAME, error=BROKE))
        limit = f"limit trained --reference plain --anchor-set d --shift blur:3,5{more}"
        acpc(*shlex.split(limit), code=4)
    assert [call.request_id for call in acpc.server.requests["ScoreCheckpoint"]] == [
        "limit-5d7f8f402a174ee471e783a5-1", "limit-10c6d9294cb201e2b1b96747-1",
        "limit-bf49fc5eca5cbc395463a227-1", "limit-d2135327d197f50733bfe66e-1",
    ]  # fmt: skip


def test_quiet_leaves_the_result_and_errors(acpc: Acpc) -> None:
    acpc.server.script.append(ended(PASSED, OPEN, **UNDECIDED))
    answer = acpc(*SCORE, "--quiet")
    assert answer.stderr == "" and answer.stdout.startswith("PASSED: ")
    acpc.server.script.append(operation(NAME, error=BROKE))
    answer = acpc(*SCORE, "--quiet", code=4)
    assert answer.stderr.startswith("error: INTERNAL: it broke") and answer.stdout == ""


def test_a_checkpoint_is_named_with_its_file_and_content(acpc: Acpc) -> None:
    for text in (f"a/run:7/b:w.pt@{'d' * 64}", f"a@{'d' * 12}", f"a@{'d' * 11}", "a@b:c"):
        acpc("score", text, *SCORE[2:], "--no-wait")
    sent = (one.checkpoint for one in acpc.server.requests["ScoreCheckpoint"])
    assert [(one.name, one.weights, one.digest) for one in sent] == [
        ("a/run:7/b", "w.pt", "d" * 64), ("a", "", "d" * 12), (f"a@{'d' * 11}", "", ""),
        ("a@b:c", "", ""),
    ]  # fmt: skip
