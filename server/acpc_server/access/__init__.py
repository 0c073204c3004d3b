"""Identifies callers, and decides what they may do."""

from acpc_server.access.control import AccessControl
from acpc_server.access.files import read_secret
from acpc_server.access.keys import create_key, read_keys, revoke_key, set_certificate_role
from acpc_server.access.roles import (
    ANYONE,
    CHANGES,
    LOCAL,
    METHOD_ROLES,
    Principal,
    Role,
    needed_role,
    require_owner,
    require_role,
    subject,
)
from acpc_server.access.tls import TlsFiles, is_local, require_guarded
