"""Who calls, and what that caller may do."""

from acpc_server.access.audit import AUDITED, subject
from acpc_server.access.control import AccessControl, AccessOptions
from acpc_server.access.exposure import is_local, require_guarded
from acpc_server.access.files import read_secret
from acpc_server.access.keys import create_key, read_keys, revoke_key
from acpc_server.access.principal import ANYONE, LOCAL, Principal, Role
from acpc_server.access.roles import METHOD_ROLES, needed_role, require_role
from acpc_server.access.tls import TlsFiles
