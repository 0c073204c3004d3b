"""Readiness has causes that come and go; sickness stays."""

from acpc_server.observe import ServerHealth


def test_a_server_is_ready_without_obstacles() -> None:
    health = ServerHealth()
    assert not health.ready
    health.block("draining", "the server stops")
    health.clear("starting")
    assert health.obstacles == {"draining": "the server stops"}
    health.clear("draining")
    assert health.ready
    assert health.live


def test_a_sick_server_is_neither_ready_nor_live_and_keeps_its_first_reason() -> None:
    health = ServerHealth()
    health.clear("starting")
    health.fail("the device fell off")
    health.fail("all else followed")
    health.clear("device")
    assert not health.ready
    assert not health.live
    assert health.sickness == "the device fell off"


def test_listeners_hear_of_changes_only_and_one_that_fails_stops_no_other() -> None:
    health, heard = ServerHealth(), []

    def broken() -> None:
        raise ValueError

    health.watch(lambda: heard.append(health.ready))
    health._listeners.insert(0, broken)
    health.clear("starting")
    health.clear("starting")
    health.block("memory", "none")
    health.block("memory", "none")
    assert heard == [False, True, False]
