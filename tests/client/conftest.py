"""Both clients behind one face, so that one test asks both."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from acpc_client.aio.client import AsyncAcpcClient
from acpc_client.errors import AcpcError
from acpc_client.retries import RetryPolicy
from acpc_client.sync.client import AcpcClient
from client_counterparty import Counterparty
from client_fixtures import counterparty, target, unused_target
from waiting import GENEROUS_SECONDS

QUICK = RetryPolicy(attempts=3)


class SyncSide:
    def __init__(self, target: str, server: Any = None) -> None:
        self.target, self.server = target, server

    def ask(self, question: Callable[[Any], Any], **options: Any) -> Any:
        with AcpcClient(self.target, **{"retry": QUICK, **options}) as client:
            return question(client)

    def collect(self, question: Callable[[Any], Any], **options: Any) -> list[Any]:
        return self.ask(lambda client: list(question(client)), **options)

    def score(self, *arguments: Any, **options: Any) -> Any:
        return self.ask(
            lambda client: client.score_checkpoint(*arguments, **options).result(GENEROUS_SECONDS)
        )

    def converse(self, plan: dict[str, Any], *steps: Callable[[Any], Any], **options: Any) -> Any:
        """What each step returned in one planning session, or the error it raised."""

        def talk(client: Any) -> list[Any]:
            answers: list[Any] = []
            with client.plan(**plan) as session:
                for step in steps:
                    try:
                        answers.append(step(session))
                    except AcpcError as error:
                        answers.append(error)
            return answers

        return self.ask(talk, **options)


class AsyncSide:
    def __init__(self, target: str, server: Any = None) -> None:
        self.target, self.server = target, server

    def _within(self, body: Callable[[Any], Any], options: dict[str, Any]) -> Any:
        async def run() -> Any:
            async with AsyncAcpcClient(self.target, **{"retry": QUICK, **options}) as client:
                return await body(client)

        return asyncio.run(run())

    def ask(self, question: Callable[[Any], Any], **options: Any) -> Any:
        return self._within(question, options)

    def collect(self, question: Callable[[Any], Any], **options: Any) -> list[Any]:
        async def gather(client: Any) -> list[Any]:
            return [item async for item in question(client)]

        return self._within(gather, options)

    def score(self, *arguments: Any, **options: Any) -> Any:
        async def wait(client: Any) -> Any:
            job = await client.score_checkpoint(*arguments, **options)
            return await job.result(GENEROUS_SECONDS)

        return self._within(wait, {})

    def converse(self, plan: dict[str, Any], *steps: Callable[[Any], Any], **options: Any) -> Any:
        async def talk(client: Any) -> list[Any]:
            answers: list[Any] = []
            async with client.plan(**plan) as session:
                for step in steps:
                    try:
                        answer = step(session)
                        answers.append(await answer if inspect.isawaitable(answer) else answer)
                    except AcpcError as error:
                        answers.append(error)
            return answers

        return self._within(talk, options)


@pytest.fixture(params=[SyncSide, AsyncSide], ids=["sync", "asyncio"])
def side_of(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def side(side_of: Any, target: str, counterparty: Counterparty) -> Any:
    return side_of(target, counterparty)
