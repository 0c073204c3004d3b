"""Who makes a call: name, tenant and roles."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Role(enum.StrEnum):
    """What a caller may do; each method needs one role."""

    READ = "read"
    SCORE = "score"
    PLAN = "plan"
    UPLOAD = "upload"
    ADMIN = "admin"


@dataclass(frozen=True)
class Principal:
    """The caller of an RPC.

    Attributes:
        name: Who it is, unique on the server: what quotas count by and the audit log names.
        tenant: Whose jobs, anchor sets and request ids it sees; empty on a server without
            authentication.
        roles: What it may do.
    """

    name: str
    tenant: str = ""
    roles: frozenset[Role] = frozenset(Role)


LOCAL = Principal("local")
"""The caller of a server without authentication."""
