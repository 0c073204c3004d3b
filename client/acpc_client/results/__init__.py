"""Answers: the contract's records, and what the client adds to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

NAMES = {
    "answers": "Operation PairOutcome StudyResult UploadProgress read_answer",
    "bar": "OnProgress listener",
    "calibrated": "CalibratedThresholds CalibrationScore SelectionStep",
    "differences": "Difference ScoreComparison compare_scores",
    "documents": "Result answered job_to_fetch score_of status_of",
    "files": "RESULT_FORMATS load_result load_thresholds save_result",
    "limit": "LimitPoint SeverityLimit",
    "worst": "WorstAnchor WorstAnchors choose_worst operation_of worst_of",
}
if TYPE_CHECKING:
    from acpc_client.results.answers import *
    from acpc_client.results.bar import *
    from acpc_client.results.calibrated import *
    from acpc_client.results.differences import *
    from acpc_client.results.documents import *
    from acpc_client.results.files import *
    from acpc_client.results.limit import *
    from acpc_client.results.worst import *
else:
    __getattr__, __dir__ = lazy_face(__name__, NAMES)
