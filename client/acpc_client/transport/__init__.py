"""Channels, deadlines and the input and output of both clients."""
# mypy: disable-error-code="no-redef"

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

NAMES = {
    "access": "Access ClientOptions Token access_from_environment make_access",
    "aio": "AsyncConversation AsyncLock AsyncPairs AsyncWire",
    "base": "DEFAULT_TARGET Feed",
    "channel": "Tls",
    "sync": "Conversation Lock Pairs Wire",
}
if TYPE_CHECKING:
    from acpc_client.transport.access import *
    from acpc_client.transport.aio import *
    from acpc_client.transport.base import *
    from acpc_client.transport.channel import *
    from acpc_client.transport.sync import *
else:
    __getattr__, __dir__ = lazy_face(__name__, NAMES)
