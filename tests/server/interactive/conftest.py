"""A planner's world for each file of tests."""

from collections.abc import Iterator

import pytest
from planning_world import PlanningWorld


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanningWorld]:
    opened = PlanningWorld(tmp_path_factory.mktemp("checkpoints"))
    yield opened
    opened.engine.close()
