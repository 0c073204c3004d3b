"""Channels, deadlines and stubs: what both clients share."""

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
    from acpc_client.transport.base import DEFAULT_TARGET, Transport, check_timeout
    from acpc_client.transport.channel import Ending, Tls
    from acpc_client.transport.session import GOODBYE_S, ReadAnswer, SessionBase
else:
    __getattr__, __dir__ = lazy_face(__name__)
