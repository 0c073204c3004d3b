"""Who calls, and what that caller may do."""

from acpc_server.access.principal import LOCAL, Principal, Role
