"""Page sizes and tokens, the same for every list."""

from __future__ import annotations

from acpc_server.errors import InvalidArgument

DEFAULT_PAGE = 100
MAX_PAGE = 1000
MAX_OFFSET = 2**31


def read_page(page_size: int, page_token: str) -> range:
    """The rows a list request asks for."""
    if not 0 <= page_size <= MAX_PAGE:
        raise InvalidArgument("page_size", f"{page_size} is not in 0 to {MAX_PAGE}")
    token = page_token or "0"
    plain = token.isascii() and token.isdecimal() and len(token) <= 10
    start = int(token) if plain else MAX_OFFSET + 1
    if start > MAX_OFFSET:
        raise InvalidArgument("page_token", "not a token of an earlier answer")
    return range(start, start + (page_size or DEFAULT_PAGE))


def write_token(next_row: int | None) -> str:
    """The token of the page that starts at ``next_row``; empty on the last page."""
    return "" if next_row is None else str(next_row)
