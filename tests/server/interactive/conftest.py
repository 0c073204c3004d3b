"""A planner's world for each file of tests, and one for a test alone."""

from collections.abc import Iterator

import pytest
from planning_world import PlanningWorld


def opened(folders: pytest.TempPathFactory) -> Iterator[PlanningWorld]:
    made = PlanningWorld(folders.mktemp("checkpoints"))
    yield made
    made.engine.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanningWorld]:
    yield from opened(tmp_path_factory)


@pytest.fixture
def own_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanningWorld]:
    yield from opened(tmp_path_factory)
