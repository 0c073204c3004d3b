"""The public surface, and what importing it must not bring along."""

import ast
import importlib
import inspect
import json
import sys
from typing import Any

import acpc.contract
import acpc_client
import processes
import pytest
from acpc.contract import KINDS
from acpc_client.aio.anchors import AsyncAnchors
from acpc_client.aio.client import AsyncAcpcClient
from acpc_client.aio.resources import (
    AsyncCheckpoints,
    AsyncDatasets,
    AsyncOperations,
    AsyncScoreJob,
    AsyncStudyJob,
)
from acpc_client.aio.session import AsyncPlanSession
from acpc_client.sync.anchors import Anchors
from acpc_client.sync.client import AcpcClient
from acpc_client.sync.resources import Checkpoints, Datasets, Operations, ScoreJob, StudyJob
from acpc_client.sync.session import PlanSession

PUBLIC = [
    "LimitPoint", "SeverityLimit", "severities_up_to",
    "DatasetFile", "Doubt", "Evidence", "EvidenceOptions", "Interval", "Look", "LookStop",
    "SequentialLooks", "UntilDecided", "TaskSummary", "Absence", "Access", "ClientOptions", "Token",
    "access_from_environment", "make_access", "CallOptions", "CertifyOptions", "PairOptions",
    "PairedOptions", "PlannerOptions", "PoolOptions", "ScoreOptions", "ViewOptions", "AcpcClient",
    "AcpcError", "AnchorArrays", "AnchorContents", "AnchorPreview", "AnchorSet", "AnchorValues",
    "AsyncAcpcClient", "AsyncPlanSession", "AsyncScoreJob", "AsyncStudyJob",
    "CalibratedThresholds", "CalibrationScore", "SelectionStep",
    "load_thresholds", "CemBudget", "CemReturn", "CertifiedSeverity", "Checkpoint", "CheckpointRef",
    "CheckpointScore", "CheckpointState", "CleanGaps",
    "CostReduction",
    "DatasetAnchors", "DistanceTerm",
    "DrawsBound",
    "DriftStudy", "ErrorDrift", "GeometryStudy",
    "IrSummary", "JobState", "LoadedCheckpoint", "ModelCard",
    "Norm", "NumericMode", "Objective", "Operation", "Outcome", "Pair",
    "PairComparison", "PairOutcome", "PairResult", "PairedIteration", "PairedPlan", "PairedPlans",
    "PartnerPast", "DestroyedActions", "AnchorSample", "Perturbation", "PlanSession",
    "PlannerStudy", "PoolCertificate", "PoolChoice", "Population", "PopulationEvidence", "Progress",
    "Reading", "Receipt", "Result", "RetryPolicy", "SampledPool", "Score",
    "ScoreJob", "ScoreProtocol", "ScoreRequest", "SelectionCertificate", "SkipReason",
    "SoftmaxBounds", "SensitivityStudy", "StudyJob", "StudyResult", "Thresholds", "Timing", "Tls",
    "Difference", "ScoreComparison", "WorstAnchor", "WorstAnchors", "compare_scores",
    "UploadProgress", "Verdict", "ViewCertificate", "errors", "load_result", "save_result",
    "severity_grid",
    "CHOICES", "DEFAULT_TARGET", "OnUpload", "RESULT_FORMATS", "Record", "Study", "answered",
    "digest_of", "parse", "parse_grid", "read_npz", "status_of", "write_whole",
    *(kind.__name__ for kind in KINDS.values()),
]  # fmt: skip

SWEEPS = [
    "Cell", "CellResult", "CellStatus", "OutOfTime", "RunEnded", "RunOptions", "ServerAway",
    "Stopped", "Sweep", "SweepFileError", "SweepProgress", "SweepResults",
    "TaskState",
]  # fmt: skip
INTEGRATIONS = [
    "CallbackOptions", "CemCertificates", "EpochScore", "EpochScorer", "IterationCertificate",
    "ScoreCheckpointCallback", "ScoringOptions", "ScreenFailed",
]  # fmt: skip

METHODS = {
    AcpcClient: [
        "absence", "anchors", "certify_pool", "checkpoints", "close", "compare_pair",
        "compare_pairs", "compare_scores", "datasets", "find_limit", "operations", "plan",
        "plan_paired",
        "preview_anchors", "run_study", "score_checkpoint", "target", "worst_anchors",
    ],
    Anchors: ["contents", "create", "delete", "get", "list", "upload"],
    Checkpoints: ["get", "list", "load", "unload"],
    Datasets: ["list", "tasks"],
    Operations: ["cancel", "delete", "get", "list", "wait", "watch"],
    PlanSession: ["certify", "certify_proposal", "close", "enter", "receipt", "restart"],
    ScoreJob: ["cancel", "operation", "progress", "result", "watch"],
    StudyJob: ["cancel", "operation", "progress", "result", "watch"],
}  # fmt: skip
TWINS = {
    AcpcClient: AsyncAcpcClient,
    Anchors: AsyncAnchors,
    Checkpoints: AsyncCheckpoints,
    Datasets: AsyncDatasets,
    Operations: AsyncOperations,
    PlanSession: AsyncPlanSession,
    ScoreJob: AsyncScoreJob,
    StudyJob: AsyncStudyJob,
}


def test_the_public_names_are_these() -> None:
    assert sorted(acpc_client.__all__) == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(acpc_client, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = acpc_client.Nothing


@pytest.mark.parametrize("package", [acpc_client, acpc.contract])
def test_a_face_has_what_its_table_says_and_type_checkers_read(package: Any) -> None:  # noqa: ANN401
    listed = {name: module for module, names in package.NAMES.items() for name in names.split()}
    assert listed.keys() <= set(dir(package))
    imports = [node for node in ast.walk(ast.parse(inspect.getsource(package)))
               if isinstance(node, ast.ImportFrom) and node.module]  # fmt: skip
    stated = {alias.name: node.module for node in imports for alias in node.names}
    whole = {node.module for node in imports if node.names[0].name == "*"}
    for name, module in listed.items():
        home = module if "." in module else f"{package.__name__}.{module}"
        homes = {home, f"{package.__name__}.{name}"}
        assert stated.get(name) in (home, package.__name__) or homes & whole, name
        assert getattr(package, name) is not None


@pytest.mark.parametrize(("package", "names"), [("sweeps", SWEEPS), ("integrations", INTEGRATIONS)])
def test_the_public_names_of_a_package_are_these(package: str, names: list[str]) -> None:
    module = importlib.import_module(f"acpc_lab.{package}")
    assert module.__all__ == names
    assert all(hasattr(module, name) for name in names)


@pytest.mark.parametrize("owner", METHODS, ids=lambda owner: owner.__name__)
def test_both_clients_have_the_same_methods_with_the_same_parameters(owner: type) -> None:
    twin = TWINS[owner]
    for cls in (owner, twin):
        public = [name for name, _ in inspect.getmembers(cls) if not name.startswith("_")]
        assert public == METHODS[owner]
    for name in METHODS[owner]:
        ours, theirs = getattr(owner, name), getattr(twin, name)
        if callable(ours):
            left, right = inspect.signature(ours).parameters, inspect.signature(theirs).parameters
            assert list(left) == list(right)
            for parameter in left.values():
                assert parameter.default == right[parameter.name].default
                assert parameter.kind == right[parameter.name].kind


def modules_after(statement: str) -> set[str]:
    """Modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}; import sys, json; print(json.dumps(list(sys.modules)))"
    shown = processes.run([sys.executable, "-c", code])
    return set(json.loads(shown.stdout))


HEAVY = {
    "opentelemetry",
    "torch",
    "typer",
    "click",
    "rich",
    "pandas",
    "pydantic",
    "h5py",
    "acpc_server",
}
WORKBENCH = {"acpc_lab", "yaml", "matplotlib", "jinja2", "pyarrow", "PIL"}


DRAWING = {"matplotlib", "jinja2", "PIL", "pyarrow", "yaml"}
LOADS: dict[str, tuple[set[str], set[str]]] = {
    "import acpc_client": (set(), {"grpc", "numpy", "google"}),
    "from acpc_client import *": ({"grpc", "numpy", "acpc_client"}, HEAVY | WORKBENCH),
    "from acpc_lab.integrations import CemCertificates, EpochScorer": (
        set(),
        HEAVY | {"stable_worldmodel", "gymnasium"},
    ),
    "from acpc_lab.sweeps import *; import acpc_lab.tables": (set(), HEAVY | DRAWING - {"PIL"}),
    "from acpc_lab.report import *": (set(), HEAVY | DRAWING),
    "import acpc_lab.cli": ({"typer"}, {"torch", "acpc_server", "pandas", "h5py"}),
    "import acpc_lab.studies.bundle, acpc_lab.studies.paper": (
        set(),
        {"torch", "acpc_server", "pandas", "matplotlib", "jinja2", "pyarrow", "sklearn", "scipy"},
    ),
}
"""What a statement loads at least, and what it does not: libraries are loaded when needed."""


@pytest.mark.process
@pytest.mark.parametrize("statement", LOADS)
def test_importing_loads_nothing_heavy(statement: str) -> None:
    needed, unused = LOADS[statement]
    loaded = {name.partition(".")[0] for name in modules_after(statement)}
    assert needed <= loaded
    assert not loaded & unused
