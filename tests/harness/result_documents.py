"""Reads documents of results as the client does."""

import json
from typing import Any

from acpc_client.results.files import read_document


def checked(document: Any) -> dict[str, Any]:
    """The document, or the text of one, which the client can read; raises ArgumentError."""
    found: dict[str, Any] = json.loads(document) if isinstance(document, str) else document
    read_document(found, {})
    return found
