"""YAML that is expensive for its size, or no value of its tag, is an error of each reader."""

from pathlib import Path

import pytest
import yaml
from acpc.contract import FailedPrecondition
from acpc.datasets import parse_task, plain_yaml
from acpc_lab.sweeps import SweepFileError
from acpc_lab.sweeps.reading import read_document

ODD = {
    "digits": "1" * 5000,
    "date": "2026-13-45",
    "hour": "2026-01-01T99:99:99Z",
    "hexadecimal": "0x_",
    "binary": "0b_",
    "no code point": '"\\U00110000"',
    "int": "!!int abc",
    "float": "!!float abc",
    "timestamp": "!!timestamp abc",
    "bool": "!!bool abc",
    "set": "!!set [a]",
    "pairs": "!!pairs [a]",
    "deep": "[" * 50_000,
    "deep mappings": "{a: " * 5000,
    "code": "!!python/object/apply:os.system [ls]",
    "its own part": "&a {<<: *a}",
}


@pytest.mark.parametrize("name", ODD)
def test_no_reader_raises_what_is_not_its_own(name: str, tmp_path: Path) -> None:
    text, file = f"name: {ODD[name]}\n", tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(yaml.YAMLError):
        plain_yaml(text)
    with pytest.raises(FailedPrecondition, match="not valid YAML"):
        parse_task("t", text.encode())
    with pytest.raises(SweepFileError):
        read_document(file)


def test_an_error_has_its_line() -> None:
    with pytest.raises(yaml.MarkedYAMLError, match="line 2") as caught:
        plain_yaml("a: 1\nb: !!int x\n")
    assert "no int" in str(caught.value)


def test_aliases_are_read_where_they_are_allowed() -> None:
    text = "a: &a [1]\nb: *a\n"
    assert plain_yaml(text, aliases=True) == {"a": [1], "b": [1]}
    with pytest.raises(yaml.YAMLError, match="aliases are not read"):
        plain_yaml(text)
