"""The one error of the contract: a field, and what is wrong with it."""

from __future__ import annotations


class ContractError(ValueError):
    """A value that breaks the contract. Server and client turn it into an error of their own.

    Attributes:
        field: Path of the field, for example ``"views[2].bounds.data"``.
        description: What is wrong with it, with the value found and the value wanted.
    """

    def __init__(self, field: str, description: str) -> None:
        super().__init__(f"{field}: {description}")
        self.field = field
        self.description = description

    def below(self, parent: str) -> ContractError:
        """The same error, with the path of what holds the field."""
        return type(self)(joined(parent, self.field), self.description)

    def at(self, index: int) -> ContractError:
        """The same error, in the item ``index`` of a repeated field whose path comes next."""
        return type(self)(f"[{index}]" + (f".{self.field}" if self.field else ""), self.description)


def joined(parent: str, field: str) -> str:
    """A field's path; either part may be empty, and an index follows without a dot."""
    dot = "." if parent and field and not field.startswith("[") else ""
    return f"{parent}{dot}{field}"
