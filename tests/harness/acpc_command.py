"""The ``acpc`` command in the process of the tests."""

from collections.abc import Callable

from acpc_lab.cli import app
from typer.testing import CliRunner, Result

Acpc = Callable[..., Result]


def acpc_command(*first: object, **variables: str) -> Acpc:
    """Runs ``acpc`` with words that stand first; expects the exit code ``code``, if None any."""

    def run(*words: object, code: int | None = 0, **more: str) -> Result:
        given = {"COLUMNS": "200", **variables, **more}
        answer = CliRunner().invoke(app, [str(word) for word in (*first, *words)], env=given)
        assert code in (None, answer.exit_code), f"{answer.exit_code}: {answer.output}"
        return answer

    return run
