"""Callers and roles: which role each method needs, and whose jobs and sets a caller may end."""

import enum
from dataclasses import dataclass

from google.protobuf.message import Message

from acpc_server.errors import PermissionDenied


class Role(enum.StrEnum):
    """What a caller may do; each role includes those before it."""

    READ = "read"
    COMPUTE = "compute"
    ADMIN = "admin"


@dataclass(frozen=True)
class Principal:
    """The caller of an RPC.

    Its ``name`` is what limits count by and logs show; ``role`` is None for a caller who may do
    nothing that needs one, and ``credential`` the id of its API key, if it has sent one.
    """

    name: str
    role: Role | None = Role.ADMIN
    credential: str = ""

    @property
    def owner(self) -> str:
        """Name that records of what it makes keep; empty on a server without authentication."""
        return "" if self is LOCAL else self.name

    def has(self, role: Role) -> bool:
        """Whether it may do what a role allows."""
        order = list(Role)
        return self.role is not None and order.index(self.role) >= order.index(role)


LOCAL = Principal("local")
"""The caller of a server without authentication."""
ANYONE = Principal("anyone", role=None)
"""The caller of a method that needs no role, such as a health probe."""

# Methods by service and role; a method that is not here needs the role admin.
_METHODS: dict[str, dict[Role, str]] = {
    "acpc.v1.AnchorService": {
        Role.READ: "GetAnchorSet ListAnchorSets",
        Role.COMPUTE: "UploadAnchors GetUpload CreateAnchorSet DeleteAnchorSet",
    },
    "acpc.v1.CheckpointService": {
        Role.READ: "ListCheckpoints GetCheckpoint",
        Role.ADMIN: "LoadCheckpoint UnloadCheckpoint",  # all callers share what is loaded
    },
    "acpc.v1.DatasetService": {Role.READ: "ListDatasets ListTasks"},
    "acpc.v1.DiagnosticService": {
        Role.COMPUTE: "ComparePair ComparePairs CertifyPool Plan PlanPaired"
    },
    "acpc.v1.ScoringService": {
        Role.READ: "WatchOperation PreviewAnchors",
        Role.COMPUTE: "ScoreCheckpoint",
    },
    "acpc.v1.StudyService": {Role.COMPUTE: "RunStudy"},
    "google.longrunning.Operations": {
        Role.READ: "GetOperation ListOperations WaitOperation",
        Role.COMPUTE: "CancelOperation DeleteOperation",
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
CHANGES = {
    "/acpc.v1.AnchorService/DeleteAnchorSet": "digest",
    "/acpc.v1.CheckpointService/LoadCheckpoint": "checkpoint",
    "/acpc.v1.CheckpointService/UnloadCheckpoint": "checkpoint",
    "/google.longrunning.Operations/CancelOperation": "name",
    "/google.longrunning.Operations/DeleteOperation": "name",
}
"""Methods that change what others may use, each with the field of its request that names it: the
log has a line ``access`` for each call."""


def needed_role(method: str) -> Role | None:
    """Return the role that a method needs, by its full name; None when anyone may call it."""
    if method.startswith("/grpc.health.v1.Health/"):
        return None
    return METHOD_ROLES.get(method, Role.ADMIN)


def require_role(principal: Principal, method: str) -> None:
    """Raise PermissionDenied, which names the role, unless a caller may call a method."""
    role = needed_role(method)
    if role is not None and not principal.has(role):
        raise PermissionDenied(
            f"{method} needs the role {role}; {principal.name} has {principal.role or 'none'}",
            reason="ROLE_MISSING",
        )


def require_owner(principal: Principal, owner: str, what: str) -> None:
    """Raise PermissionDenied unless a caller may end or delete what ``owner`` has made."""
    if principal.name != owner and not principal.has(Role.ADMIN):
        raise PermissionDenied(
            f"{what} was made by {owner or 'a caller without a name'}: to end it needs the role "
            f"{Role.ADMIN}; {principal.name} has {principal.role}",
            reason="ROLE_MISSING",
        )


def subject(method: str, request: Message) -> str:
    """Return the operation, anchor set or checkpoint that a request of ``CHANGES`` names."""
    value = getattr(request, CHANGES[method])
    return str(getattr(value, "name", value))[:200]
