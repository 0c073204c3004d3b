"""Two callers of one server, each with an API key and a tenant of its own."""

from dataclasses import dataclass
from pathlib import Path

from acpc_server.access import Role, create_key

TENANTS = ("adversary", "victim")


@dataclass(frozen=True)
class Tenants:
    """The key of each tenant, and the file that a server reads."""

    keys_file: Path
    keys: dict[str, str]

    def metadata(self, tenant: str) -> tuple[tuple[str, str], ...]:
        """What a tenant sends with a call."""
        return (("authorization", f"Bearer {self.keys[tenant]}"),)

    def headers(self, tenant: str) -> tuple[tuple[bytes, bytes], ...]:
        """The same for frames by hand."""
        return tuple((key.encode(), value.encode()) for key, value in self.metadata(tenant))


def make_tenants(folder: Path) -> Tenants:
    """Keys with every role for an adversary and a victim."""
    path = folder / "keys.json"
    keys = {
        name: create_key(path, principal=name, tenant=name, roles=frozenset(Role), expires=None)
        for name in TENANTS
    }
    return Tenants(path, keys)
