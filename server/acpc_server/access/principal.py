"""Who makes a call: name, tenant and roles."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from acpc_server.scheduling import Quota


class Role(enum.StrEnum):
    """What a caller may do; each method needs one role, and none contains another."""

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
        quota: What it may use, when that is not what the server gives each caller.
    """

    name: str
    tenant: str = ""
    roles: frozenset[Role] = frozenset(Role)
    quota: Quota | None = None


LOCAL = Principal("local")
"""The caller of a server without authentication."""
ANYONE = Principal("anyone", roles=frozenset())
"""The caller of a method that needs no role, such as a health probe."""
