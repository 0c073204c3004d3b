"""The role that each method needs. A method that is not here needs the role admin."""

from __future__ import annotations

from acpc_server.access.principal import Principal, Role
from acpc_server.errors import PermissionDenied

_METHODS: dict[str, dict[str, Role]] = {
    "acpc.v1.AnchorService": {
        "UploadAnchors": Role.UPLOAD,
        "GetUpload": Role.UPLOAD,
        "CreateAnchorSet": Role.UPLOAD,
        "DeleteAnchorSet": Role.UPLOAD,
        "GetAnchorSet": Role.READ,
        "ListAnchorSets": Role.READ,
    },
    "acpc.v1.CheckpointService": {
        "ListCheckpoints": Role.READ,
        "GetCheckpoint": Role.READ,
        # What one caller loads or unloads, all callers have or lack.
        "LoadCheckpoint": Role.ADMIN,
        "UnloadCheckpoint": Role.ADMIN,
    },
    # The datasets and tasks are the server's, as its checkpoints are.
    "acpc.v1.DatasetService": {"ListDatasets": Role.READ, "ListTasks": Role.READ},
    "acpc.v1.DiagnosticService": {
        "ComparePair": Role.PLAN,
        "ComparePairs": Role.PLAN,
        "CertifyPool": Role.PLAN,
        "Plan": Role.PLAN,
        "PlanPaired": Role.PLAN,
    },
    "acpc.v1.ScoringService": {
        "ScoreCheckpoint": Role.SCORE,
        "WatchOperation": Role.READ,
        "PreviewAnchors": Role.READ,
    },
    "acpc.v1.StudyService": {"RunStudy": Role.SCORE},
    "google.longrunning.Operations": {
        "GetOperation": Role.READ,
        "ListOperations": Role.READ,
        "WaitOperation": Role.READ,
        "CancelOperation": Role.SCORE,
        "DeleteOperation": Role.SCORE,
    },
    **{
        f"grpc.reflection.{version}.ServerReflection": {"ServerReflectionInfo": Role.READ}
        for version in ("v1", "v1alpha")
    },
}
METHOD_ROLES = {
    f"/{service}/{method}": role
    for service, methods in _METHODS.items()
    for method, role in methods.items()
}
"""Role by full method name."""


def needed_role(method: str) -> Role | None:
    """The role that a method needs, by its full name; None when anyone may call it."""
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
