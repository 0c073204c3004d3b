"""Where a server may listen without access control."""

from __future__ import annotations

import pytest
from acpc_server.access import is_local, require_guarded
from acpc_server.errors import FailedPrecondition

LOCAL = ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "::ffff:127.0.0.1", "unix:/run/a"]
OPEN = [
    "0.0.0.0",  # noqa: S104
    "::",
    "[::]",
    "10.0.0.7",
    "192.168.1.2",
    "fe80::1%eth0",
    "no-such-name.invalid",
    "",
]


@pytest.mark.parametrize("host", LOCAL)
def test_this_machine_alone(host: str) -> None:
    assert is_local(host)
    require_guarded(host, authenticated=False, encrypted=False, insecure=False)


@pytest.mark.parametrize("host", [*OPEN, "::ffff:10.0.0.7", "1"])
def test_reachable_from_elsewhere(host: str) -> None:
    assert not is_local(host)
    with pytest.raises(FailedPrecondition) as caught:
        require_guarded(host, authenticated=False, encrypted=True, insecure=False)
    for way in ("--host 127.0.0.1", "--keys-file", "--insecure"):
        assert way in caught.value.message
    with pytest.raises(FailedPrecondition, match="in the clear"):
        require_guarded(host, authenticated=True, encrypted=False, insecure=False)
    require_guarded(host, authenticated=True, encrypted=True, insecure=False)
    require_guarded(host, authenticated=False, encrypted=False, insecure=True)
