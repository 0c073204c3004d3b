"""Rows of a device call: equal ones share an answer, and too many for the memory are halved."""

import pytest
import torch
from acpc.contract import NumericMode
from acpc_server.engine import DeviceClient
from acpc_server.errors import ResourceExhausted
from acpc_server.observe import Metrics
from acpc_server.scheduling import Priority, RequestContext
from plain_model import CARD, PlainModel
from torch import Tensor

pytestmark = pytest.mark.edge

CPU = torch.device("cpu")
FP32, INTERACTIVE = NumericMode.FP32, Priority.INTERACTIVE


class Numbered(PlainModel):
    """Its predictions are the numbers of their rows."""

    def unroll(self, histories: Tensor, past: Tensor, future: Tensor) -> Tensor:
        rows = torch.arange(float(len(histories)))[:, None, None, None]
        return rows.expand(len(histories), future.shape[1], future.shape[2], 3)


def test_equal_rows_of_a_rollout_share_the_first_ones_answer() -> None:
    engine, context = DeviceClient(CPU, Metrics()), RequestContext(INTERACTIVE)
    rows = torch.tensor([1.0, 2.0, 1.0])[:, None, None]
    model, blocks = Numbered(), torch.zeros(3, 2, CARD.action_block_dim)
    found = engine.rollout(model, rows.expand(3, 1, 3).clone(), blocks, context, FP32)
    assert found[:, 0, 0].tolist() == [0.0, 1.0, 0.0]
    engine.close()


def test_a_batch_too_large_for_the_memory_is_halved_until_it_fits() -> None:
    seen: list[int] = []

    def small(rows: Tensor) -> None:
        seen.append(len(rows))
        if len(rows) > 2:
            raise torch.OutOfMemoryError

    engine = DeviceClient(CPU, Metrics())
    many = torch.arange(7.0)[:, None, None, None].expand(7, 3, 8, 8)
    answer = engine.encode(PlainModel(small), many, RequestContext(INTERACTIVE), FP32)
    assert answer[:, 0].tolist() == list(range(7))
    assert max(seen) == 7

    def never(_: Tensor) -> None:
        raise torch.OutOfMemoryError

    with pytest.raises(ResourceExhausted) as refused:
        engine.encode(PlainModel(never), many, RequestContext(INTERACTIVE), FP32)
    assert refused.value.reason == "DEVICE_MEMORY"
    engine.close()
