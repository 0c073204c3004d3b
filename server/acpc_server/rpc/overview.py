"""A page of the jobs for people: what was asked, by whom, how far it is, the verdict. Read only.

Rendered for each request, without scripts. Whoever may list jobs by gRPC may read it: a
browser sends the API key as the password of HTTP Basic.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import jinja2
import structlog
from acpc.contract import Interval, JobState, Score, cell

from acpc_server.access import AccessControl, require_role
from acpc_server.errors import (
    AcpcError,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unauthenticated,
)
from acpc_server.jobs import Job, JobFilter, JobService
from acpc_server.rpc.operations import OperationWriter, life
from acpc_server.rpc.request import read_name

log = structlog.get_logger("acpc.http")
# What a browser on this host calls it; what other names resolve to is up to their owners.
HERE = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?")
METHOD = "/google.longrunning.Operations/ListOperations"
ROWS, REMEMBERED = 25, 1024
STATUSES = {
    "INVALID_ARGUMENT": HTTPStatus.BAD_REQUEST,
    "NOT_FOUND": HTTPStatus.NOT_FOUND,
    "PERMISSION_DENIED": HTTPStatus.FORBIDDEN,
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
}
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
LEFT, WIDTH = 110, 380  # of a bar in the picture


class Overview:
    """Answers GET requests for ``/`` and ``/operations/<id>`` in HTML; ``title`` is its footer."""

    def __init__(
        self, jobs: JobService, writer: OperationWriter, access: AccessControl, title: str
    ) -> None:
        self._jobs, self._writer, self._access, self._title = jobs, writer, access, title
        self._remembered = lru_cache(REMEMBERED)(self._score)  # a score that is there never changes
        loader = jinja2.PackageLoader("acpc_server.rpc", "")
        made = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)
        self._template = made.get_template("overview.html.j2")

    def __call__(self, environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
        """Answer as a WSGI application; an error is a page of its own."""
        path, query = environ["PATH_INFO"], environ.get("QUERY_STRING", "")
        status, headers = HTTPStatus.OK, HEADERS
        try:
            self._admit(environ.get("HTTP_HOST", ""), environ.get("HTTP_AUTHORIZATION", ""))
            found = self._list(query) if path == "/" else self._one(read_name(path[1:]))
        except AcpcError as error:
            status = STATUSES.get(error.code, HTTPStatus.SERVICE_UNAVAILABLE)
            found = {"error": error.message}
            if status is HTTPStatus.UNAUTHORIZED:
                headers = HEADERS | {"WWW-Authenticate": 'Basic realm="API key as the password"'}
        except Exception:
            log.exception("page_failed", path=path)
            status, found = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "a bug: see the log"}
        start(f"{status:d} {status.phrase}", list(headers.items()))
        return [self._template.render(title=self._title, **found).encode()]

    def _admit(self, host: str, given: str) -> None:
        if not self._access.authenticated:
            # A page of somebody else, whose name was made to lead here, must not read this one.
            if not HERE.fullmatch(host):
                raise PermissionDenied("without API keys this page is for browsers of its host")
            return
        scheme, _, key = given.partition(" ")
        if scheme.lower() == "basic":
            try:
                key = base64.b64decode(key, validate=True).decode("ascii").partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                key = "unreadable"
        if not key:
            raise Unauthenticated("give an API key as the password", reason="NO_CREDENTIALS")
        require_role(
            self._access.identify(METHOD, [("authorization", f"Bearer {key}")], {}), METHOD
        )

    def _list(self, query: str) -> dict[str, Any]:
        digits = query.removeprefix("start=") or "0"
        if not digits.isdecimal() or len(digits) > 9:
            raise InvalidArgument("start", f"found {query[:40]!r}, wanted /?start=NUMBER")
        start = int(digits)
        jobs = list(self._jobs.list(start, ROWS + 1, JobFilter()))
        return {
            "jobs": [self._told(job) | {"score": self._remembered_of(job)} for job in jobs[:ROWS]],
            "running": any(not job.state.done for job in jobs),
            "newer": max(0, start - ROWS) if start else None,
            "older": start + ROWS if len(jobs) > ROWS else None,
        }

    def _one(self, job_id: str) -> dict[str, Any]:
        job = self._jobs.get(job_id)
        found: dict[str, Any] = {"job": self._told(job), "running": not job.state.done}
        if job.state is not JobState.SUCCEEDED or job.result is None:
            return found
        answer: Any = self._writer.kinds[job.kind].answer(job.spec, job.result)
        found["receipt"] = json.dumps(answer.receipt.to_dict(), indent=2, default=str)
        if isinstance(answer, Score):
            columns = answer.shown()
            rows = [[cell(value) for value in row] for row in zip(*columns.values(), strict=True)]
            found["score"] = _verdict(answer) | {
                "summary": answer.verdict.summary,
                "bars": _bars(answer),
                "columns": list(columns),
                "rows": rows,
            }
        return found

    def _told(self, job: Job) -> dict[str, Any]:
        """What every job has."""
        about = life(job)
        metadata: Any = self._writer.kinds[job.kind].metadata(job.spec, about)
        request = metadata.request
        shift, progress = getattr(request, "shift", None), job.progress
        return {
            "id": job.job_id,
            "checkpoint": request.checkpoint.name,
            "what": shift or f"study: {request.study.kind}",
            "state": job.state.name.lower(),
            "completed": progress.completed,
            "total": 0 if job.state.done else progress.total,
            "owner": job.owner,
            "created": f"{about['create_time']:%d %b %Y %H:%M} UTC",
            "failure": job.failure and job.failure.message,
        }

    def _remembered_of(self, job: Job) -> dict[str, str] | None:
        with suppress(NotFound):  # it was deleted meanwhile
            return self._remembered(job.job_id) if job.state is JobState.SUCCEEDED else None
        return None

    def _score(self, job_id: str) -> dict[str, str] | None:
        job = self._jobs.get(job_id)
        answer = self._writer.kinds[job.kind].answer(job.spec, job.result or {})
        return _verdict(answer) if isinstance(answer, Score) else None


def _verdict(score: Score) -> dict[str, str]:
    return {"outcome": score.verdict.outcome.name.lower(), "sure": score.certainty}


def _bars(score: Score) -> list[dict[str, Any]]:
    """Return relative IR, where it is known, and SR beside what is wanted of them."""
    verdict, evidence, limits = score.verdict, score.evidence, score.verdict.thresholds
    sr, held = score.checkpoint.sr, evidence.sr if evidence else None
    low = max(0.0, min(sr, held.lower if held else sr, 2 * limits.sr - 1))
    bars = [_bar("SR", sr, held, (low, 1.0), (limits.sr, 1.0))]
    if verdict.ir_relative is not None:
        held = evidence.ir_relative if evidence else None
        ends = (0.0, max(2 * limits.ir, 1.2 * verdict.ir_relative))
        bars.insert(0, _bar("relative IR", verdict.ir_relative, held, ends, (0.0, limits.ir)))
    return bars


def _bar(
    title: str,
    value: float,
    held: Interval | None,
    axis: tuple[float, float],
    wanted: tuple[float, float],
) -> dict[str, Any]:
    low, high = axis

    def at(number: float) -> float:
        return LEFT + WIDTH * (min(max(number, low), high) - low) / ((high - low) or 1.0)

    return {
        "title": title,
        "text": f"{value:.4g}",
        "at": at(value),
        "ends": (at(held.lower), at(held.upper)) if held else (at(value), at(value)),
        "good": [at(end) for end in wanted],
        "low": f"{low:.3g}",
        "high": f"{high:.3g}",
    }
