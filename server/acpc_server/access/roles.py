"""Callers and roles: which role each method needs, and what the audit log records of a call."""

import enum
from dataclasses import dataclass

from google.protobuf.message import Message

from acpc_server.errors import PermissionDenied
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
    """The caller of an RPC."""

    name: str  # unique on the server: what quotas count by and the audit log names
    tenant: str = ""  # whose jobs, sets and request ids it sees; empty without access control
    roles: frozenset[Role] = frozenset(Role)
    quota: Quota | None = None  # None: what the server gives each caller
    credential: str = ""  # id of its key, or serial number of its certificate; empty for a token


LOCAL = Principal("local")
"""The caller of a server without authentication."""
ANYONE = Principal("anyone", roles=frozenset())
"""The caller of a method that needs no role, such as a health probe."""

# Methods by service and role; a method that is not here needs the role admin.
_METHODS: dict[str, dict[Role, str]] = {
    "acpc.v1.AnchorService": {
        Role.UPLOAD: "UploadAnchors GetUpload CreateAnchorSet DeleteAnchorSet",
        Role.READ: "GetAnchorSet ListAnchorSets",
    },
    "acpc.v1.CheckpointService": {
        Role.READ: "ListCheckpoints GetCheckpoint",
        Role.ADMIN: "LoadCheckpoint UnloadCheckpoint",  # all callers share what is loaded
    },
    "acpc.v1.DatasetService": {Role.READ: "ListDatasets ListTasks"},
    "acpc.v1.DiagnosticService": {
        Role.PLAN: "ComparePair ComparePairs CertifyPool Plan PlanPaired"
    },
    "acpc.v1.ScoringService": {
        Role.SCORE: "ScoreCheckpoint",
        Role.READ: "WatchOperation PreviewAnchors",
    },
    "acpc.v1.StudyService": {Role.SCORE: "RunStudy"},
    "google.longrunning.Operations": {
        Role.READ: "GetOperation ListOperations WaitOperation",
        Role.SCORE: "CancelOperation DeleteOperation",
    },
    "grpc.reflection.v1.ServerReflection": {Role.READ: "ServerReflectionInfo"},
    "grpc.reflection.v1alpha.ServerReflection": {Role.READ: "ServerReflectionInfo"},
}
METHOD_ROLES = {
    f"/{service}/{method}": role
    for service, by_role in _METHODS.items()
    for role, methods in by_role.items()
    for method in methods.split()
}
"""Role by full method name."""
AUDITED = frozenset(
    method
    for method, role in METHOD_ROLES.items()
    if role in (Role.UPLOAD, Role.SCORE, Role.ADMIN) and not method.endswith("/GetUpload")
)
"""Methods that change something, by full name: each call of one is a line of the audit log."""
MAX_AUDITED_TEXT = 200
# Fields of an audit line, and where requests and answers have them.
_AUDITED_FIELDS = (
    ("operation", "name"),
    ("anchor_set", "digest"),
    ("anchor_set", "anchor_set"),
    ("anchor_set", "anchor_set.digest"),
    ("checkpoint", "checkpoint.name"),
    ("checkpoint_digest", "checkpoint.digest"),
)


def needed_role(method: str) -> Role | None:
    """Return the role that a method needs, by its full name; None when anyone may call it."""
    if method.startswith("/grpc.health.v1.Health/"):
        return None
    return METHOD_ROLES.get(method, Role.ADMIN)


def require_role(principal: Principal, method: str) -> None:
    """Raise PermissionDenied, which names the role, unless a caller may call a method."""
    role = needed_role(method)
    if role is not None and role not in principal.roles:
        has = ", ".join(sorted(principal.roles)) or "none"
        raise PermissionDenied(
            f"{method} needs the role {role}; {principal.name} has {has}", reason="ROLE_MISSING"
        )


def subject(message: Message) -> dict[str, str]:
    """Return the operation, anchor set and checkpoint that an audited message names."""
    found = {}
    for field, path in _AUDITED_FIELDS:
        value: object = message
        for part in path.split("."):
            value = getattr(value, part, None)
        if isinstance(value, str) and value:
            found[field] = value[:MAX_AUDITED_TEXT]
    return found
