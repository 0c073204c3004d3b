"""Thin client of the ACPC diagnostic service.

Names are loaded at first use, so that importing the package costs next to nothing. Nothing here
imports torch or what the command line stands on.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acpc_client import errors
    from acpc_client.anchor_arrays import AnchorArrays
    from acpc_client.async_client import AsyncAcpcClient
    from acpc_client.async_resources import AsyncScoreJob, AsyncStudyJob
    from acpc_client.async_session import AsyncPlanSession
    from acpc_client.channel import Tls
    from acpc_client.downloads import load_score, save_score
    from acpc_client.errors import AcpcError
    from acpc_client.inputs import (
        CemBudget,
        CemReturn,
        CheckpointRef,
        CostReduction,
        DatasetAnchors,
        NumericMode,
        Pair,
        ScoreProtocol,
        Thresholds,
    )
    from acpc_client.perturbations import (
        Brightness,
        ColorJitter,
        Contrast,
        DefocusBlur,
        GaussianBlur,
        GaussianNoise,
        Identity,
        Jpeg,
        MotionBlur,
        Occlusion,
        Perturbation,
        RandomShift,
        Registered,
        Resize,
    )
    from acpc_client.results import (
        AnchorPreview,
        AnchorSet,
        AnchorValues,
        CertifiedSeverity,
        Checkpoint,
        CheckpointScore,
        CheckpointState,
        ErrorDrift,
        IrSummary,
        JobState,
        LoadedCheckpoint,
        ModelCard,
        Operation,
        Outcome,
        PairComparison,
        PairedIteration,
        PairedPlan,
        PairedPlans,
        PairOutcome,
        PairResult,
        PoolCertificate,
        Progress,
        Receipt,
        SampledPool,
        Score,
        ScoreRequest,
        SelectionCertificate,
        SkipReason,
        StudyResult,
        Timing,
        UploadProgress,
        Verdict,
        ViewCertificate,
    )
    from acpc_client.retries import RetryPolicy
    from acpc_client.severities import severity_grid
    from acpc_client.study_inputs import (
        DriftStudy,
        GeometryStudy,
        PlannerStudy,
        SensitivityStudy,
    )
    from acpc_client.sync_client import AcpcClient
    from acpc_client.sync_resources import ScoreJob, StudyJob
    from acpc_client.sync_session import PlanSession

__all__ = [
    "AcpcClient",
    "AcpcError",
    "AnchorArrays",
    "AnchorPreview",
    "AnchorSet",
    "AnchorValues",
    "AsyncAcpcClient",
    "AsyncPlanSession",
    "AsyncScoreJob",
    "AsyncStudyJob",
    "Brightness",
    "CemBudget",
    "CemReturn",
    "CertifiedSeverity",
    "Checkpoint",
    "CheckpointRef",
    "CheckpointScore",
    "CheckpointState",
    "ColorJitter",
    "Contrast",
    "CostReduction",
    "DatasetAnchors",
    "DefocusBlur",
    "DriftStudy",
    "ErrorDrift",
    "GaussianBlur",
    "GaussianNoise",
    "GeometryStudy",
    "Identity",
    "IrSummary",
    "JobState",
    "Jpeg",
    "LoadedCheckpoint",
    "ModelCard",
    "MotionBlur",
    "NumericMode",
    "Occlusion",
    "Operation",
    "Outcome",
    "Pair",
    "PairComparison",
    "PairOutcome",
    "PairResult",
    "PairedIteration",
    "PairedPlan",
    "PairedPlans",
    "Perturbation",
    "PlanSession",
    "PlannerStudy",
    "PoolCertificate",
    "Progress",
    "RandomShift",
    "Receipt",
    "Registered",
    "Resize",
    "RetryPolicy",
    "SampledPool",
    "Score",
    "ScoreJob",
    "ScoreProtocol",
    "ScoreRequest",
    "SelectionCertificate",
    "SensitivityStudy",
    "SkipReason",
    "StudyJob",
    "StudyResult",
    "Thresholds",
    "Timing",
    "Tls",
    "UploadProgress",
    "Verdict",
    "ViewCertificate",
    "errors",
    "load_score",
    "save_score",
    "severity_grid",
]

_HOMES = {
    "AnchorArrays": "anchor_arrays",
    "AsyncAcpcClient": "async_client",
    "AsyncScoreJob": "async_resources",
    "AsyncStudyJob": "async_resources",
    "AsyncPlanSession": "async_session",
    "Tls": "channel",
    "load_score": "downloads",
    "save_score": "downloads",
    "AcpcError": "errors",
    "CemBudget": "inputs",
    "CemReturn": "inputs",
    "CheckpointRef": "inputs",
    "CostReduction": "inputs",
    "DatasetAnchors": "inputs",
    "NumericMode": "inputs",
    "Pair": "inputs",
    "ScoreProtocol": "inputs",
    "Thresholds": "inputs",
    "Brightness": "perturbations",
    "ColorJitter": "perturbations",
    "Contrast": "perturbations",
    "DefocusBlur": "perturbations",
    "GaussianBlur": "perturbations",
    "GaussianNoise": "perturbations",
    "Identity": "perturbations",
    "Jpeg": "perturbations",
    "MotionBlur": "perturbations",
    "Occlusion": "perturbations",
    "Perturbation": "perturbations",
    "RandomShift": "perturbations",
    "Registered": "perturbations",
    "Resize": "perturbations",
    "severity_grid": "severities",
    "AnchorPreview": "results",
    "AnchorSet": "results",
    "AnchorValues": "results",
    "CertifiedSeverity": "results",
    "Checkpoint": "results",
    "CheckpointScore": "results",
    "CheckpointState": "results",
    "ErrorDrift": "results",
    "IrSummary": "results",
    "JobState": "results",
    "LoadedCheckpoint": "results",
    "ModelCard": "results",
    "Operation": "results",
    "Outcome": "results",
    "PairComparison": "results",
    "PairOutcome": "results",
    "PairResult": "results",
    "PairedIteration": "results",
    "PairedPlan": "results",
    "PairedPlans": "results",
    "PoolCertificate": "results",
    "Progress": "results",
    "Receipt": "results",
    "SampledPool": "results",
    "Score": "results",
    "ScoreRequest": "results",
    "SelectionCertificate": "results",
    "SkipReason": "results",
    "StudyResult": "results",
    "Timing": "results",
    "UploadProgress": "results",
    "Verdict": "results",
    "ViewCertificate": "results",
    "RetryPolicy": "retries",
    "DriftStudy": "study_inputs",
    "GeometryStudy": "study_inputs",
    "PlannerStudy": "study_inputs",
    "SensitivityStudy": "study_inputs",
    "AcpcClient": "sync_client",
    "ScoreJob": "sync_resources",
    "StudyJob": "sync_resources",
    "PlanSession": "sync_session",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        if name == "errors":
            return importlib.import_module("acpc_client.errors")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"acpc_client.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
