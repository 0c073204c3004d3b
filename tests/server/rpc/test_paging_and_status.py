"""Pages cover a list once and in order; a status fits its trailers and says what was said."""

import grpc
import pytest
from acpc.v1.dataset_service_pb2 import ListDatasetsRequest
from acpc_server import errors
from acpc_server.rpc.request import MAX_OFFSET, MAX_TEXT_BYTES, page_of, plain_status, to_status
from hypothesis import given
from hypothesis import strategies as st
from wire import Refusal


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


def every_error() -> list[type[errors.AcpcError]]:
    """Those that a server raises: another test may have brought the client's in."""
    found: list[type[errors.AcpcError]] = []
    left = [errors.AcpcError]
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        if hasattr(kind, "code") and not kind.__module__.startswith("acpc_client"):
            found.append(kind)
    return found


def made(kind: type[errors.AcpcError]) -> errors.AcpcError:
    if issubclass(kind, errors.InvalidArgument):
        return kind("field", "wrong")
    if issubclass(kind, errors.UnknownName):
        return kind("wrong", "name", list, "acpc checkpoints")
    return kind("wrong")


def test_every_error_has_a_status() -> None:
    """No class of the tree can reach a caller without a code, a reason and the request's id."""
    assert len(every_error()) >= 10
    for kind in every_error():
        refusal = Refusal.of_status(to_status(made(kind), "id"))
        assert refusal.code == kind.code
        assert grpc.StatusCode[kind.code] is not grpc.StatusCode.OK
        assert (refusal.reason, refusal.domain) == (kind.default_reason, "acpc.v1")
        assert refusal.request_id == "id"
        assert refusal.message.endswith("wrong")


def test_retry_advice_travels() -> None:
    error = errors.ResourceExhausted("full", reason="QUEUE_FULL", retry_after=0.25)
    refusal = Refusal.of_status(to_status(error, "id"))
    assert (refusal.reason, refusal.retry_after) == ("QUEUE_FULL", 0.25)


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
