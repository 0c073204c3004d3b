"""The ``acpc`` command in the process of the tests."""

from dataclasses import dataclass, field
from typing import Any

from acpc_lab.cli import app
from typer.testing import CliRunner, Result


@dataclass
class Acpc:
    """Runs ``acpc`` with words that stand first, and variables of the environment.

    Attributes:
        server: The scripted server that it asks, if there is one.
    """

    first: tuple[object, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    server: Any = None

    def __call__(self, *words: object, code: int | None = 0, **more: str) -> Result:
        """What it answers; expects the exit code ``code``, if None any."""
        given = {"COLUMNS": "200", **self.variables, **more}
        answer = CliRunner().invoke(app, [str(word) for word in (*self.first, *words)], env=given)
        assert code in (None, answer.exit_code), f"{answer.exit_code}: {answer.output}"
        return answer


def acpc_command(*first: object, server: Any = None, **variables: str) -> Acpc:
    return Acpc(first, variables, server)
