"""Services on a record, in SQLite and in PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from job_desk import Desk


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.process)])
def record_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres").new_database()
    return f"sqlite:///{tmp_path / 'jobs.sqlite'}"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    opened = Desk(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def either(tmp_path: Path, record_url: str) -> Iterator[Desk]:
    opened = Desk(tmp_path, record_url)
    yield opened
    opened.close()
