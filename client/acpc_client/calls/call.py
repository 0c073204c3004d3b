"""A call before it is sent, as far as sending it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from acpc_client.errors import ArgumentError, MalformedAnswer

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Method:
    """One method of the contract.

    Attributes:
        stub: Generated stub class of its service.
        name: Its name there.
        timeout: Default deadline in seconds.
        idempotent: Whether sending it twice does what sending it once does.
    """

    stub: type[Any]
    name: str
    timeout: float
    idempotent: bool = True

    @property
    def service(self) -> str:
        """Full name of its service."""
        package = self.stub.__module__.rpartition(".")[0]
        return f"{package}.{self.stub.__name__.removesuffix('Stub')}"


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """A request ready to be sent, as often as the retries need.

    Attributes:
        method: Where it goes.
        request: The message; it carries one request id through all attempts.
        parse: Turns the response message into the answer.
        request_id: The id, for errors; empty for methods without one.
    """

    method: Method
    request: Any
    parse: Callable[[Any], Answer]
    request_id: str = ""

    def read(self, answer: object) -> Answer:
        """The typed answer of a response message.

        Raises:
            MalformedAnswer: The response breaks the contract.
        """
        if answer is None:  # what grpc.aio yields for bytes that are no such message
            raise MalformedAnswer(f"the answer of {self.method.name} cannot be read")
        try:
            return self.parse(answer)
        except ArgumentError as error:
            raise MalformedAnswer(str(error)) from error


@dataclass(frozen=True)
class Page(Generic[Answer]):
    """One page of a list."""

    items: tuple[Answer, ...]
    next_token: str
