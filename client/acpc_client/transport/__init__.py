"""Channels, deadlines and the input and output of both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

if TYPE_CHECKING:
    from acpc_client.transport.access import (
        Access,
        ClientOptions,
        Token,
        access_from_environment,
        make_access,
    )
    from acpc_client.transport.aio import (
        AsyncConversation,
        AsyncListing,
        AsyncLock,
        AsyncMaker,
        AsyncPairs,
        AsyncWire,
    )
    from acpc_client.transport.base import DEFAULT_TARGET, Feed
    from acpc_client.transport.channel import Tls
    from acpc_client.transport.sync import Conversation, Listing, Lock, Maker, Pairs, Wire
else:
    __getattr__, __dir__ = lazy_face(__name__)
