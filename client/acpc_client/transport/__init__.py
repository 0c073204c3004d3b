"""Channels, deadlines and stubs: what both clients share."""

from acpc_client.transport import channel
from acpc_client.transport.base import DEFAULT_TARGET, ClientBase
from acpc_client.transport.channel import Tls
from acpc_client.transport.session import GOODBYE_S, SessionBase
