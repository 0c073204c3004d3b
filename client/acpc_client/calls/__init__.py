"""The service's methods and the messages of their requests. No I/O; both clients use them."""

from typing import TYPE_CHECKING

from acpc.faces import lazy_face

if TYPE_CHECKING:
    from acpc_client.calls import methods, names, options, requests
else:  # a client is made without the messages of the contract
    __getattr__, __dir__ = lazy_face(__name__, {})
