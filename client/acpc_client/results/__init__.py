"""Answers: the contract's records, and what the client adds to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

if TYPE_CHECKING:
    from acpc_client.results.answers import (
        Operation,
        PairOutcome,
        StudyResult,
        UploadProgress,
        read_answer,
    )
    from acpc_client.results.bar import OnProgress, listener
    from acpc_client.results.calibrated import CalibratedThresholds, CalibrationScore, SelectionStep
    from acpc_client.results.differences import Difference, ScoreComparison, compare_scores
    from acpc_client.results.documents import Result, answered, job_to_fetch, score_of, status_of
    from acpc_client.results.files import RESULT_FORMATS, load_result, load_thresholds, save_result
    from acpc_client.results.limit import LimitPoint, SeverityLimit
    from acpc_client.results.worst import (
        WorstAnchor,
        WorstAnchors,
        choose_worst,
        operation_of,
        worst_of,
    )
else:
    __getattr__, __dir__ = lazy_face(__name__)
