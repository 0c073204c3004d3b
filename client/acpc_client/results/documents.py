"""One document per outcome: what was asked, what was answered, from what, by which job, and when.

    {"schema": "acpc.result", "schema_version": 1, "kind": "score", "operation": "operations/...",
     "time": "...", "request": {...}, "answer": {...}, "receipt": {...}}

docs/schemas holds a JSON Schema for each kind. Within a version only fields are added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from acpc.contract import (
    ArgumentError,
    PairComparison,
    PairedPlans,
    PoolCertificate,
    Record,
    Score,
    ScoreRequest,
    from_plain,
    to_plain,
)
from numpy.typing import NDArray

from acpc_client.results.codec import Arrays, decode, encode
from acpc_client.results.operations import Operation
from acpc_client.results.studies import StudyResult

SCHEMA = "acpc.result"
VERSION = 1
KINDS: dict[str, type[Any]] = {
    "score": Score,
    "study": StudyResult,
    "comparison": PairComparison,
    "certificate": PoolCertificate,
    "paired_plans": PairedPlans,
}
"""Kinds whose answer is a record; that of any other kind is plain values."""
_ABOVE = ("request", "receipt")
_NESTED = ("score", "study")


@dataclass(frozen=True, repr=False, eq=False)
class Result(Record):
    """An answer with all that explains it.

    Attributes:
        kind: ``"score"``, ``"study"``, ``"comparison"``, ``"certificate"``, ``"paired_plans"``;
            ``"operation"`` for a job as it is; of the lab ``"sweep"``, ``"sweep_cell"`` and
            ``"study_summary"``.
        answer: A record, or plain values; see ``KINDS``.
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
    def of(cls, answer: Any) -> Result:  # noqa: ANN401 - any of them
        """The result of an answer, or of an operation, which knows its request too.

        Raises:
            ArgumentError: It is neither.
        """
        if isinstance(answer, Result):
            return answer
        if isinstance(answer, Operation):
            return _of_operation(answer)
        for kind, known in KINDS.items():
            if isinstance(answer, known):
                return cls(kind, answer, getattr(answer, "request", {}))
        names = ", ".join(known.__name__ for known in KINDS.values())
        found = type(answer).__name__
        raise ArgumentError("answer", f"found {found}, wanted an Operation or one of {names}")

    @property
    def score_request(self) -> ScoreRequest | None:
        """What a scoring job was asked; None for another kind, or when this release cannot tell."""
        try:
            return from_plain(ScoreRequest, self.request) if self.kind == "score" else None
        except (ArgumentError, TypeError):
            return None

    def to_dict(self) -> dict[str, Any]:
        """The document; NaN and infinities are None."""
        plain = super().to_dict()
        return self._document(plain["answer"], plain["time"])

    def encoded(self) -> tuple[dict[str, Any], Arrays]:
        """The document with its arrays beside it, named by their paths: every bit is kept.

        Only of the kinds whose answer is read as a record again; others stay whole.
        """
        arrays: Arrays = {}
        if self.kind not in KINDS:
            return self.to_dict(), arrays
        plain = encode(self.answer, "answer", arrays)
        time = None if self.time is None else self.time.isoformat()
        return self._document(plain, time), arrays

    def _document(self, answer: dict[str, Any], time: str | None) -> dict[str, Any]:
        receipt = answer.get("receipt")
        for nested in _NESTED if self.kind == "operation" else ():
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


def _without(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in _ABOVE}


def _of_operation(operation: Operation) -> Result:
    answer = operation.score or operation.study
    if answer is None:
        return status_of(operation)
    kind = "study" if operation.study else "score"
    return Result(kind, answer, _asked(operation), operation.name, operation.end_time)


def status_of(operation: Operation) -> Result:
    """An operation as it is: state, progress and times, and its answer when it has one."""
    return Result("operation", operation, _asked(operation), operation.name, operation.end_time)


def _asked(operation: Operation) -> Mapping[str, Any]:
    if operation.study is not None:
        return operation.study.request
    return {} if operation.request is None else to_plain(operation.request)


def answered(
    kind: str,
    method: Callable[..., Any],
    checkpoint: Any,  # noqa: ANN401 - a name or a ref
    **arguments: Any,  # noqa: ANN401 - the method's
) -> Result:
    """Calls a method of a client, and keeps what it was asked beside the answer."""
    answer = method(checkpoint, **arguments)
    return Result(kind, answer, {"checkpoint": checkpoint, **arguments}, time=datetime.now(UTC))


def described(value: Any) -> Any:  # noqa: ANN401 - any argument
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


def read_document(document: Any, arrays: Mapping[str, NDArray[Any]]) -> Result:  # noqa: ANN401
    """The result that a document is, with its arrays inside or beside it.

    Documents of releases that wrote an answer alone are read too.

    Raises:
        ArgumentError: It is none, or of a newer release.
    """
    if not isinstance(document, Mapping):
        raise ArgumentError("path", "holds no result: it is no JSON object")
    if "schema" not in document:
        return _read_older(document, arrays)
    if document["schema"] != SCHEMA:
        raise ArgumentError("path", f"has schema {document['schema']!r}, wanted {SCHEMA!r}")
    version = document.get("schema_version")
    if not isinstance(version, int) or version > VERSION:
        raise ArgumentError(
            "path",
            f"has schema_version {version}, of a newer release; this one reads {VERSION}: "
            "update acpc",
        )
    try:
        kind, answer = document["kind"], document["answer"]
        request, time = document.get("request") or {}, document.get("time")
        whole = {**answer, "receipt": document["receipt"]}
        if kind in KINDS:
            answer = decode(KINDS[kind], {**whole, "request": request}, arrays)
        else:
            answer = whole
        at = None if time is None else datetime.fromisoformat(time)
        return Result(kind, answer, request, document.get("operation") or "", at)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArgumentError("path", f"holds no result: {error!r}") from error


def _read_older(document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Result:
    """A score, a study, or an operation with one of them, without what was asked."""
    if "verdict" in document:
        return Result.of(decode(Score, document, arrays))
    if "columns" in document:
        return Result.of(decode(StudyResult, document, arrays))
    for nested in _NESTED:
        if isinstance(document.get(nested), Mapping):
            return _read_older(document[nested], arrays)
    raise ArgumentError("path", "holds no result of acpc")
