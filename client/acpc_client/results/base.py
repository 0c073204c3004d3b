"""Reads the parts of a message that answers share."""

from __future__ import annotations

from typing import Any, TypeVar

from acpc.contract import ArgumentError, Wire

from acpc_client.errors import MalformedAnswer

Answer = TypeVar("Answer", bound=Wire[Any])


def read_answer(answer: type[Answer], message: object) -> Answer:
    """The answer that a message stands for.

    Raises:
        MalformedAnswer: The message breaks the contract.
    """
    try:
        return answer.from_message(message)
    except ArgumentError as error:
        raise MalformedAnswer(str(error)) from error
