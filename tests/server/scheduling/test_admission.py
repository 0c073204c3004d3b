"""Which requests a busy server takes on, and how it rejects the others."""

from contextlib import ExitStack

import pytest
from acpc_server.errors import (
    AcpcError,
    Cancelled,
    DeadlineExceeded,
    InvalidArgument,
    ResourceExhausted,
)
from acpc_server.scheduling import Admission, Priority, RequestContext

SHORT, LONG = "ComparePair", "PlanPaired"
Asks = tuple[str, float, str]  # method, seconds, caller


class Server:
    """Admission of a server that knows how long methods take alone; its clock is told the time."""

    def __init__(self, most: int = 12, **alone: float) -> None:
        self.now = 0.0
        self.admission = Admission(most, lambda: self.now)
        self.entered = ExitStack()
        for method, seconds in alone.items():
            for _ in range(200):
                self.admission.learn((method, 0), seconds)

    def enter(self, method: str, count: int = 1, caller: str = "") -> None:
        for _ in range(count):
            self.entered.enter_context(self.admission.request(method, context(caller=caller)))

    def rejection(self, method: str, seconds: float, caller: str = "") -> ResourceExhausted | None:
        """How a request with so much time is rejected, or None; it leaves at once."""
        try:
            with self.admission.request(method, context(seconds, caller)):
                return None
        except ResourceExhausted as error:
            return error

    def seconds(self, method: str) -> float:
        return self.admission.seconds((method, 0))


def context(seconds: float | None = None, caller: str = "") -> RequestContext:
    return RequestContext(Priority.INTERACTIVE, seconds, caller=caller)


def test_no_more_than_the_limit_are_under_way() -> None:
    server = Server(2)
    server.enter(SHORT)
    server.enter(LONG)
    rejected = server.rejection(SHORT, 60.0)
    assert rejected.reason == "SERVER_BUSY"
    assert rejected.retry_after, "soon, but not at once"
    server.entered.close()
    assert server.rejection(SHORT, 60.0) is None


# Seconds each method takes alone; what is under way; who asks, with too few seconds; how long it
# would take; and how many seconds are enough. Callers and requests take turns on the device.
LATE: dict[str, tuple[dict[str, float], list[tuple[str, int, str]], Asks, float, float]] = {
    "of its method": ({SHORT: 1.0}, [(SHORT, 4, "")], (SHORT, 2.0, ""), 5.0, 100.0),
    "of another method": (
        {SHORT: 1.0, "CertifyPool": 1.0}, [("CertifyPool", 4, "")], (SHORT, 2.0, ""), 5.0, 100.0,
    ),
    "behind long ones it waits its own length each": (
        {SHORT: 0.1, LONG: 100.0}, [(LONG, 3, "")], (SHORT, 0.5, ""), 0.4, 5.0,
    ),
    "behind short ones it waits theirs": (
        {SHORT: 0.1, LONG: 1.0}, [(SHORT, 5, "")], (LONG, 1.0, ""), 1.5, 5.0,
    ),
    "its caller's own are all ahead": (
        {SHORT: 1.0}, [(SHORT, 7, "many")], (SHORT, 5.0, "many"), 8.0, 100.0,
    ),
    "a newcomer's wait for one of the other each": (
        {SHORT: 1.0}, [(SHORT, 7, "many"), (SHORT, 2, "new")], (SHORT, 5.0, "new"), 6.0, 100.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LATE)
def test_a_request_that_would_be_late_is_rejected_and_one_with_time_is_not(case: str) -> None:
    alone, under_way, (method, seconds, caller), takes, enough = LATE[case]
    server = Server(**alone)
    for given in under_way:
        server.enter(*given)
    count = server.admission.under_way
    with pytest.raises(ResourceExhausted) as told:
        server.admission.check(method, caller, seconds)
    server.admission.check(method, caller, enough)
    assert server.admission.under_way == count, "who only asks is not counted"
    late = server.rejection(method, seconds, caller)
    assert server.rejection(method, enough, caller) is None
    assert told.value.reason == late.reason == "DEADLINE_CANNOT_BE_MET"
    assert late.retry_after == pytest.approx(takes, rel=0.01)


def test_the_last_places_are_not_for_whoever_has_most() -> None:
    server = Server(ComparePair=0.001)
    server.enter(SHORT, 9, caller="many")
    busy = server.rejection(SHORT, 60.0, "many")
    server.enter(SHORT, 3, caller="few")
    full = server.rejection(SHORT, 60.0, "newcomer")
    assert busy.reason == full.reason == "SERVER_BUSY"


def test_answers_that_leave_together_cost_no_less_than_they_took() -> None:
    """Eight calls that share 10 ms leave at once; a ninth behind seven would take about as long."""
    server = Server()
    for _ in range(30):
        server.enter(SHORT, 8)
        server.now += 0.01
        server.entered.close()
    server.enter(SHORT, 7)
    assert server.seconds(SHORT) < 0.005, "a share of the 10 ms, as eight took turns"
    assert server.rejection(SHORT, 0.005).retry_after >= 0.01


def test_an_idle_server_lets_every_request_try() -> None:
    """Nobody is ahead, so what was slow before may be fast now."""
    assert Server(ComparePair=10.0).rejection(SHORT, 0.001) is None


@pytest.mark.parametrize("error", [InvalidArgument("history", "broken"), Cancelled("gone")])
def test_a_request_that_fails_is_counted_out_and_teaches_nothing(error: AcpcError) -> None:
    """A caller of such requests must not make the server believe that requests are quick."""
    server = Server(ComparePair=1.0)
    for _ in range(100):
        with pytest.raises(type(error)), server.admission.request(SHORT, context()):
            server.now += 0.001
            raise error
    assert server.seconds(SHORT) == pytest.approx(1.0, rel=0.01)
    server.enter(SHORT, 8)


@pytest.mark.parametrize("ending", [DeadlineExceeded("late"), ResourceExhausted("withdrawn")])
def test_a_request_that_ran_out_of_time_teaches_that_it_took_it(ending: AcpcError) -> None:
    server = Server()
    with pytest.raises(type(ending)), server.admission.request(SHORT, context()):
        server.now += 0.01
        raise ending
    assert server.seconds(SHORT) > 0


def test_a_method_that_was_never_measured_gets_in_beside_a_busy_one() -> None:
    """However busy another method keeps the server, one request of a new one may measure it."""
    server = Server(CertifyPool=1.0)
    server.enter("CertifyPool", 7)
    with server.admission.request(SHORT, context(0.5)):
        assert server.rejection(SHORT, 0.5) is not None, "one is enough"


def test_one_that_was_admitted_once_waits_as_long_as_it_has() -> None:
    """As the later messages of a stream; and it knows that others are ahead."""
    server = Server(ComparePair=1.0, Plan=1.0)
    with server.admission.request("Plan", first := context(10.0)):
        assert not first.waits
    server.enter(SHORT, 6)
    assert server.rejection("Plan", 10.0) is not None
    with server.admission.request("Plan", asked := context(10.0), 1.0):
        assert asked.waits


def test_a_method_believed_to_be_slow_is_tried_again_beside_a_busy_one() -> None:
    """The server is never idle, so nothing else would measure it again; rejections do not."""
    server = Server(ComparePair=0.1, PlanPaired=100.0)
    server.enter(SHORT)
    for _ in range(1000):  # without time between them
        assert server.rejection(LONG, 60.0) is not None
    assert server.seconds(LONG) == pytest.approx(100.0, rel=0.5)
    rejections = 0
    while server.rejection(LONG, 60.0) is not None:
        rejections += 1
        server.now += 0.1
        server.admission.learn((SHORT, 0), 0.1)
    assert 0 < rejections < 200


def test_dear_requests_of_a_method_do_not_count_for_cheap_ones() -> None:
    """A caller's dear calls, over within their doubling, leave the estimate of cheap ones."""
    server = Server(256)
    for size, seconds in [(0, 0.1), (7, 40.0)] * 30:
        server.admission.learn((SHORT, size), seconds)
    server.enter(SHORT, caller="dear")
    with server.admission.request(SHORT, dear := context(300.0, "dear")):
        dear.price(100.0)
        assert server.rejection(SHORT, 2.0, "cheap") is None
        late = context(20.0, "late")
        refused = pytest.raises(ResourceExhausted, match="would take")
        with refused, server.admission.request(SHORT, late):
            late.price(60.0)
            late.price(40.0)
        assert server.admission.under_way == 2
    server.entered.close()
    assert server.admission.under_way == 0
