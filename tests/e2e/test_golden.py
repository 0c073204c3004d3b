"""Law: a release answers what it is asked as the one before: numbers, choices, receipts."""

import json

import golden
import pytest


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, golden.Values]:
    folder = golden.write_world(tmp_path_factory.mktemp("datasets"))
    return golden.answers(folder, tmp_path_factory.mktemp("state"))


KEPT = json.loads(golden.KEPT.read_text())


@pytest.mark.parametrize("name", KEPT)
def test_an_answer_is_as_it_was(name: str, found: dict[str, golden.Values]) -> None:
    """What a later release adds to an answer is not looked at; ``golden.py --keep`` takes it in."""
    answer = golden.summary(found[name])
    changed = {
        path: (value, answer.get(path))
        for path, value in KEPT[name].items()
        if golden.apart(value, answer.get(path))
    }
    assert not changed
