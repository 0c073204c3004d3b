"""Programs that tests use where they are installed."""

import os
from typing import NoReturn

import pytest


def required(name: str) -> bool:
    """Whether ACPC_TEST_REQUIRE makes the absence of a program a failure."""
    return name in os.environ.get("ACPC_TEST_REQUIRE", "").split(",")


def missing(name: str, install: str) -> NoReturn:
    (pytest.fail if required(name) else pytest.skip)(f"no {name}: apt-get install {install}")
