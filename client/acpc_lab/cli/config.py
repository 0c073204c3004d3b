"""``acpc config``."""

from typing import Annotated, Literal

import typer

from acpc_lab.cli import profiles, render
from acpc_lab.cli.options import Printed
from acpc_lab.tables import Quantity


def _held(key: str) -> Quantity:
    return Quantity(key, lambda row: row[2].get(key, "-"), wide=key != "target")


_ROWS = (
    Quantity("profile", lambda row: row[0]),
    Quantity("in use", lambda row: row[1]),
    *(_held(key) for key in profiles.KEYS),
)


class Config(Printed):
    """Keeps connections as profiles: which server, and how to get in.

    A profile holds `target`, `tls_ca`, `tls_name`, `client_certificate`, `client_key`,
    `token_file`, `insecure`, `timeout` (seconds of a call, or of a wait) and `patience` (seconds
    that the server may be away). Each is also a variable, as `ACPC_TARGET`, which wins over the
    profile; an API key itself has a variable only, `ACPC_API_KEY`. `--profile` or `ACPC_PROFILE`
    names a profile; without it the one in use counts, unless a target is named another way.

    **Examples**

        acpc config set target=gpu-host:50051 token_file=planner.key --profile lab
        acpc config use lab
        acpc config list

    Attributes:
        action: What to do.
        words: To set, to unset; or to use.
        profile: The profile to change [the one in use, or default].
    """

    action: Annotated[Literal["list", "set", "unset", "use", "delete"], typer.Argument()] = "list"
    words: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE|KEY|PROFILE]...")] = None
    profile: str = ""

    def __call__(self) -> None:
        current, held = profiles.read()
        if self.action == "list":
            rows = [(name, name == current, profile) for name, profile in sorted(held.items())]
            render.listing(rows, _ROWS, self.form, lambda row: {"profile": row[0], **row[2]})
            return
        name = self.profile or current or "default"
        for word in self.words or ():
            if self.action in ("use", "delete"):
                profiles.chosen(word, named_elsewhere=False)
                current = word if self.action == "use" else current
                if self.action == "delete":
                    held.pop(word)
                current = current if current in held else ""
            else:
                key, _, text = word.partition("=")
                held.setdefault(name, {}).pop(key, None)
                if self.action == "set":
                    held[name][key] = profiles.value_of(key, text)
                current = current or name
        profiles.write(current, held)
        render.note(f"{profiles.file()}: written")
