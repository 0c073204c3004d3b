"""Keeps what is large in the specs of jobs once, by its digest, which their specs name it by.

Such are bytes, as the plate of a background. Lists and pages read specs alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import sqlalchemy as sa

from acpc_server.errors import InvalidArgument
from acpc_server.jobs.kind import Json
from acpc_server.jobs.record import Record

# Bytes up to which they stay in the spec: a digest has 71.
SMALL_BYTES = 1024
# What a job may add to the record beside its spec: the four plates of a composition are 12 MiB. And
# what one may name that is kept already: it is held while the job runs.
MAX_BYTES, MAX_NAMED_BYTES = 2**24, 2**26
# Of the spec itself, as JSON.
MAX_SPEC_BYTES = 2**19
_NAMED = re.compile(rb"sha256:([0-9a-f]{64})")

T = TypeVar("T")


def replaced(value: T, change: Callable[[bytes], bytes]) -> T:
    """Return a record with all bytes in it, however deep, as ``change`` returns them."""
    if isinstance(value, bytes):
        return cast("T", change(value))
    if isinstance(value, tuple):
        return cast("T", tuple(replaced(item, change) for item in value))
    if not is_dataclass(value) or isinstance(value, type):
        return value
    new: dict[str, Any] = {}
    for field in fields(value):
        held = getattr(value, field.name)
        if (found := replaced(held, change)) is not held and found != held:
            new[field.name] = found
    return replace(value, **new) if new else value


def taken_out(value: T) -> tuple[T, dict[str, bytes]]:
    """Return a record with digests in place of what is large, and that by its digest."""
    payloads: dict[str, bytes] = {}

    def take(held: bytes) -> bytes:
        if len(held) <= SMALL_BYTES:
            return held
        digest = hashlib.sha256(held).hexdigest()
        payloads[digest] = held
        return b"sha256:" + digest.encode()

    return replaced(value, take), payloads


def require_small(plain: Json, fresh: Mapping[str, bytes]) -> None:
    """Raise InvalidArgument for a job that would add too much to the record."""
    large, size = sum(map(len, fresh.values())), len(json.dumps(plain))
    if large > MAX_BYTES:
        wrong = f"the new plates of this job hold {large} bytes, over {MAX_BYTES}; submit fewer"
        raise InvalidArgument("", wrong)
    if size > MAX_SPEC_BYTES:
        wrong = f"this request takes {size} bytes on record, over {MAX_SPEC_BYTES}"
        raise InvalidArgument("", wrong)


class Payloads:
    """What is large in the jobs of a record, in a table beside DBOS's own."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._table = sa.Table(
            "acpc_payloads",
            record.own_tables,
            sa.Column("digest", sa.Text, primary_key=True),
            sa.Column("payload", sa.LargeBinary, nullable=False),
        )

    def fresh(self, payloads: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return what is not stored yet."""
        digest = self._table.c.digest
        known = self._record.ask(sa.select(digest).where(digest.in_(payloads)))
        return {digest: payloads[digest] for digest in payloads.keys() - {row[0] for row in known}}

    def keep(self, payloads: Mapping[str, bytes]) -> None:
        """Store what is not stored yet; within :meth:`Record.alone`."""
        if fresh := self.fresh(payloads):
            rows = [{"digest": one, "payload": held} for one, held in fresh.items()]
            with self._record.engine.begin() as connection:
                connection.execute(sa.insert(self._table), rows)

    def fill(self, value: T, field: str = "") -> T:
        """Return a record with everything in place that it names by digest.

        InvalidArgument, of ``field``: no job on record has it, or it is too much to hold.
        """
        known: dict[str, bytes] = {}

        def put(held: bytes) -> bytes:
            if not (found := _NAMED.fullmatch(held)):
                return held
            return known.setdefault(found[1].decode(), held)

        replaced(value, put)  # which names are there
        if not known:
            return value
        table = self._table.c
        named = table.digest.in_([*known])
        held = sa.select(sa.func.sum(sa.func.length(table.payload))).where(named)
        if (size := self._record.ask(held)[0][0] or 0) > MAX_NAMED_BYTES:
            raise InvalidArgument(
                field, f"the plates that this names hold {size} bytes, over {MAX_NAMED_BYTES}"
            )
        query = sa.select(table.digest, table.payload).where(named)
        found = {row.digest: bytes(row.payload) for row in self._record.ask(query)}
        if missing := known.keys() - found.keys():
            raise InvalidArgument(
                field, f"no job on record has the plate sha256:{min(missing)}; send its pixels"
            )
        known.update(found)
        return replaced(value, put)

    def forget(self, needed: Callable[[], Collection[str]]) -> None:
        """Remove all but what is ``needed``; within :meth:`Record.alone`."""
        with self._record.engine.begin() as connection:
            digest = self._table.c.digest
            kept = {row[0] for row in connection.execute(sa.select(digest))}
            if kept and (unneeded := kept - set(needed())):
                connection.execute(sa.delete(self._table).where(digest.in_(unneeded)))
