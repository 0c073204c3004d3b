"""An engine whose failures are noted, and callers of it."""

from collections.abc import Callable

import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from plain_model import PlainModel, frames
from torch import Tensor


class OwnedDevice:
    """An engine on the CPU whose failures are noted, and callers without a deadline."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.metrics = Metrics()
        self.engine = DeviceClient(
            torch.device("cpu"), self.metrics, on_failed=self.failures.append
        )

    def ask(self, before: Callable[[Tensor], object] = lambda _: None, count: int = 1) -> Tensor:
        return self.encode(PlainModel(before), frames(1.0, count))  # type: ignore[arg-type]

    def encode(
        self,
        model: PlainModel,
        given: Tensor,
        priority: Priority = Priority.INTERACTIVE,
        mode: NumericMode = NumericMode.FP32,
    ) -> Tensor:
        return self.engine.encode(model, given, RequestContext(priority), mode)
