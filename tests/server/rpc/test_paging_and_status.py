"""Pages cover a list once and in order; a status fits its trailers and says what was said."""

import pytest
from acpc.v1.dataset_service_pb2 import ListDatasetsRequest
from acpc_server import errors
from acpc_server.rpc.request import MAX_OFFSET, page_of
from acpc_server.rpc.status import MAX_TEXT_BYTES, plain_status, to_status
from hypothesis import given
from hypothesis import strategies as st


def page(rows: int, size: int, token: str) -> tuple[list[int], str]:
    asked = ListDatasetsRequest(page_size=size, page_token=token)
    return page_of(asked, range(rows), int)


@given(st.integers(0, 50), st.integers(1, 7))
def test_pages_cover_a_list_once(rows: int, size: int) -> None:
    seen, token = page(rows, size, "")
    while token:
        following, token = page(rows, size, token)
        assert following, "no page is empty but the only one"
        seen += following
    assert seen == list(range(rows))


def test_the_last_offset_is_a_token_and_the_next_is_not() -> None:
    assert page(1, 1, str(MAX_OFFSET)) == ([], "")
    with pytest.raises(errors.InvalidArgument):
        page(1, 1, str(MAX_OFFSET + 1))


@given(st.text())
def test_any_token_is_a_page_or_refused(token: str) -> None:
    try:
        assert page(10, 0, token)[1] == ""
    except errors.InvalidArgument as error:
        assert error.field == "page_token"


@given(st.text(min_size=1, max_size=20), st.integers(1, 400))
def test_long_texts_are_cut_at_a_character(text: str, times: int) -> None:
    message = text * times
    shown = plain_status("INTERNAL", message, []).message
    assert len(shown.encode()) <= MAX_TEXT_BYTES
    whole = message.encode("utf-8", "replace").decode()
    assert shown == whole or (shown.endswith("...") and whole.startswith(shown[:-3]))


def test_a_status_of_the_worst_error_fits_the_trailers() -> None:
    error = errors.InvalidArgument("\u1234" * 9000, "\u1234" * 9000)
    status = to_status(error, "\u1234" * 128)
    # The message goes percent-encoded, the details in base64 at worst.
    size = 9 * len(status.message) + 4 * len(status.SerializeToString()) // 3
    assert size < 8000
