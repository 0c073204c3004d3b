"""Answers: the contract's records, and what the client adds to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

NAMES = {
    "answers": "Operation PairOutcome StudyResult UploadProgress read_answer",
    "bar": "OnProgress listener",
    "calibrated": "CalibratedThresholds CalibrationScore SelectionStep",
    "documents": "Result answered status_of",
    "files": "RESULT_FORMATS load_result load_thresholds save_result",
}
if TYPE_CHECKING:
    from acpc_client.results.answers import *
    from acpc_client.results.bar import *
    from acpc_client.results.calibrated import *
    from acpc_client.results.documents import *
    from acpc_client.results.files import *
else:
    __getattr__, __dir__ = lazy_face(__name__, NAMES)
