"""Identifies callers, and decides what they may do."""

from acpc_server.access.control import AccessControl, AccessOptions
from acpc_server.access.files import read_secret
from acpc_server.access.key_uses import KEY_USES, last_uses
from acpc_server.access.keys import create_key, read_keys, revoke_key, rotate_key
from acpc_server.access.roles import (
    ANYONE,
    AUDITED,
    LOCAL,
    METHOD_ROLES,
    Principal,
    Role,
    needed_role,
    require_role,
    subject,
)
from acpc_server.access.tls import TlsFiles, is_local, require_guarded
