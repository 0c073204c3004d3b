"""One document per outcome: what was asked, what was answered, from what, by which job, and when.

    {"schema": "acpc.result", "schema_version": 1, "kind": "score", "operation": "operations/...",
     "time": "...", "request": {...}, "answer": {...}, "receipt": {...}}

Within a version only fields are added.
"""

from __future__ import annotations

import hashlib
import html
import math
from collections.abc import Callable, Mapping
from dataclasses import field, is_dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from acpc import contract
from acpc.contract import ArgumentError, Array, Record, Score, from_plain, to_plain

from acpc_client.results.answers import Operation, StudyResult
from acpc_client.results.calibrated import CalibratedThresholds

SCHEMA = "acpc.result"
VERSION = 1
KINDS: dict[str, type] = {
    "score": Score,
    "study": StudyResult,
    "comparison": contract.PairComparison,
    "certificate": contract.PoolCertificate,
    "paired_plans": contract.PairedPlans,
    "thresholds": CalibratedThresholds,
}
"""Kinds whose answer is a record."""
PLAIN_KINDS = ("operation", "sweep", "sweep_cell", "study_summary", "limit")
"""Kinds whose answer is plain values: a job as it is, and what the lab writes."""
ABOVE = ("request", "receipt")
"""Parts of an answer that stand above it."""


class Result(Record):
    """An answer with all that explains it.

    Attributes:
        kind: One of ``KINDS`` or of ``PLAIN_KINDS``.
        answer: A record of that kind, or plain values.
        request: The whole request as plain values; empty: not known. An array is its dtype, shape
            and sha256.
        operation: Name of the job; empty: there is none.
        time: When the job ended, or the call was answered; None: not known.
    """

    kind: str
    answer: Any
    request: Mapping[str, Any] = field(default_factory=dict)
    operation: str = ""
    time: datetime | None = None

    @classmethod
    def of(cls, answer: object) -> Result:
        """The result of an answer, or of an operation, which knows its request too.

        Raises ArgumentError: It is neither.
        """
        if isinstance(answer, Result):
            return answer
        if isinstance(answer, Operation):
            held = answer.score or answer.study
            if held is None:
                return status_of(answer)
            kind = "study" if answer.study else "score"
            return cls(kind, held, _asked(answer), answer.name, answer.end_time)
        for kind, known in KINDS.items():
            if isinstance(answer, known):
                return cls(kind, answer, getattr(answer, "request", {}))
        names = ", ".join(known.__name__ for known in KINDS.values())
        found = type(answer).__name__
        raise ArgumentError("answer", f"found {found}, wanted an Operation or one of {names}")

    @property
    def score_request(self) -> contract.ScoreRequest | None:
        """The request of a scoring job; None for another kind, or one this release cannot read."""
        try:
            return from_plain(contract.ScoreRequest, self.request) if self.kind == "score" else None
        except (ArgumentError, TypeError):
            return None

    def to_dict(self) -> dict[str, Any]:
        """The document; NaN and infinities are None."""
        plain = super().to_dict()
        return self._document(plain["answer"], plain["time"])

    def _repr_html_(self) -> str:
        """Returns the answer's table for a notebook, or the document of plain values."""
        if isinstance(self.answer, contract.Tabular):
            return self.answer._repr_html_()
        return f"<pre>{html.escape(self.to_json(indent=2))}</pre>"

    def encoded(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The document with its arrays beside it, named by their paths: every bit is kept.

        Only of the kinds whose answer is read as a record again; others stay whole.
        """
        arrays: dict[str, Array] = {}

        def leaf(value: Any, path: str) -> Any:  # noqa: ANN401 - any field
            if isinstance(value, np.ndarray):
                arrays[path] = value
                return path
            return str(value) if isinstance(value, float) and not math.isfinite(value) else value

        if self.kind not in KINDS:
            return self.to_dict(), arrays
        plain = to_plain(self.answer, leaf, "answer")
        return self._document(plain, None if self.time is None else self.time.isoformat()), arrays

    def _document(self, answer: dict[str, Any], time: str | None) -> dict[str, Any]:
        receipt = answer.get("receipt")
        for nested in ("score", "study") if self.kind == "operation" else ():
            held = answer.get(nested) or {}
            receipt = held.get("receipt", receipt)
            answer[nested] = _without(held) or None
        return {
            "schema": SCHEMA,
            "schema_version": VERSION,
            "kind": self.kind,
            "operation": self.operation or None,
            "time": time,
            "request": described(self.request) or None,
            "answer": _without(answer),
            "receipt": receipt,
        }


def _without(answer: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in answer.items() if name not in ABOVE}


def status_of(operation: Operation) -> Result:
    """An operation as it is: state, progress and times, and its answer when it has one."""
    return Result("operation", operation, _asked(operation), operation.name, operation.end_time)


def _asked(operation: Operation) -> Mapping[str, Any]:
    if operation.study is not None:
        return operation.study.request
    return {} if operation.request is None else to_plain(operation.request)


def answered(
    kind: str, method: Callable[..., object], checkpoint: object, **arguments: object
) -> Result:
    """Calls a method of a client, and keeps what it was asked beside the answer."""
    answer = method(checkpoint, **arguments)
    return Result(kind, answer, {"checkpoint": checkpoint, **arguments}, time=datetime.now(UTC))


def described(value: object) -> Any:  # noqa: ANN401 - any argument
    """The plain form of what was asked: of an array its dtype, shape and sha256."""
    match value:
        case np.ndarray():
            content = np.ascontiguousarray(value)
            return {
                "dtype": value.dtype.name,
                "shape": list(value.shape),
                "sha256": hashlib.sha256(content.data).hexdigest(),
            }
        case Mapping():
            return {key: described(item) for key, item in value.items()}
        case list() | tuple():
            return [described(item) for item in value]
        case _ if is_dataclass(value):
            return described(to_plain(value))
    return to_plain(value)
