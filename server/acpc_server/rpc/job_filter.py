"""The filter of ListOperations."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime

from acpc_server.errors import InvalidArgument
from acpc_server.jobs import JobFilter, JobState

MAX_FILTER = 1000
LABELS = ("checkpoint",)
OPERATORS = {"state": "=", "kind": "=", "checkpoint": "=", "created": ">="}
TERM = re.compile(r'\s*(?P<key>\w+)\s*(?P<operator>[<>]?=|[<>])\s*(?P<value>"[^"]*"|[^\s"]+)\s*')
AND = re.compile(r"AND(?=\s)")


def read_filter(text: str, kinds: Collection[str]) -> JobFilter:
    """The jobs a filter lets through: terms joined by ``AND``, each at most once.

    ``state=<state>``, ``kind=<kind>``, ``checkpoint=<name>``, ``created>=<RFC 3339 time>``; a
    value may stand in double quotes.

    Args:
        text: The filter; empty lets every job through.
        kinds: Names of the kinds of job.

    Raises:
        InvalidArgument: Not of that form; says what is wrong where.
    """
    if len(text) > MAX_FILTER:
        raise InvalidArgument("filter", f"{len(text)} characters are over {MAX_FILTER}")
    given: dict[str, str] = {}
    rest = text.strip()
    while rest:
        term = TERM.match(rest)
        if term is None:
            raise _refusal(f"{rest!r} is no term such as state=running or checkpoint=NAME")
        key, operator = term["key"], term["operator"]
        if key not in OPERATORS:
            raise _refusal(f"unknown key {key!r}; known are {', '.join(OPERATORS)}")
        if operator != OPERATORS[key]:
            raise _refusal(f"{key}{operator}; write {key}{OPERATORS[key]}")
        if key in given:
            raise _refusal(f"{key} is given twice")
        given[key] = term["value"].strip('"')
        rest = rest[term.end() :]
        if rest:
            joint = AND.match(rest)
            if joint is None:
                raise _refusal(f"join terms with AND; found {rest!r}")
            rest = rest[joint.end() :].strip()
            if not rest:
                raise _refusal("AND needs a term after it")
    return JobFilter(
        state=_read_state(given.get("state")),
        kind=_read_kind(given.get("kind"), kinds),
        created_since=_read_time(given.get("created")),
        labels={label: given[label] for label in LABELS if label in given},
    )


def _read_state(value: str | None) -> JobState | None:
    states = {str(state): state for state in JobState if state}
    if value is not None and value.lower() not in states:
        raise _refusal(f"state={value}; the states are {', '.join(states)}")
    return None if value is None else states[value.lower()]


def _read_kind(value: str | None, kinds: Collection[str]) -> str | None:
    if value is not None and value not in kinds:
        raise _refusal(f"kind={value}; the kinds are {', '.join(kinds)}")
    return value


def _read_time(value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise _refusal(f"created>={value}; give an RFC 3339 time such as 2026-01-31T08:00:00Z")
    return time


def _refusal(problem: str) -> InvalidArgument:
    return InvalidArgument("filter", problem)
