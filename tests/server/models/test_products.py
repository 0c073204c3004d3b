"""Packed products: the numbers of plain ones, used where shapes say so, and never copied."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from acpc_server.models import products
from acpc_server.models.products import LEAST_WORK, Linear, pack, packs
from torch import Tensor, nn
from torch.nn import functional as F

pytestmark = pytest.mark.unit
PACKS = packs(torch.float32)
needs_packing = pytest.mark.skipif(not PACKS, reason="torch has no oneDNN here")
INNER, OUTER = 96, 160


def linear(*, bias: bool = True) -> Linear:
    torch.manual_seed(0)
    return Linear(INNER, OUTER, bias=bias).requires_grad_(False)


def rows(count: int, width: int, seed: int = 1) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def by_hand(map_: Linear, x: Tensor, row: int) -> list[float]:
    """One row of outputs in float64, sum by sum."""
    weight, given = map_.weight.double().numpy(), x[row].double().numpy()
    bias = np.zeros(OUTER) if map_.bias is None else map_.bias.double().numpy()
    return [
        sum(w * g for w, g in zip(line, given, strict=True)) + b
        for line, b in zip(weight, bias, strict=True)
    ]


@needs_packing
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_packed_products_are_those_of_a_loop_in_float64(
    bias: bool, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "takes_in_gelu", lambda: fused)
    map_, count = linear(bias=bias), LEAST_WORK // (INNER * OUTER) + 3
    x, residual = rows(count, INNER), rows(count, OUTER, 2)
    assert map_.pack() == map_.weight.nbytes
    with torch.inference_mode():
        found = map_(x), map_.gelu(x), map_.plus(x, residual)
    for row in (0, count - 1):
        plain = np.array(by_hand(map_, x, row))
        risen = [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in plain]
        wanted = plain, risen, plain + residual[row].double().numpy()
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got[row].double(), want, rtol=0, atol=1e-5)


@needs_packing
def test_shapes_alone_decide_and_any_layout_is_taken() -> None:
    map_, plain = linear(), linear()
    map_.pack()
    few, many = rows(8, INNER), rows(LEAST_WORK // (INNER * OUTER) + 1, INNER)
    with torch.inference_mode():
        assert torch.equal(map_(few), plain(few)), "too little work for the packed weight"
        assert torch.equal(map_(many), map_(many.clone())), "the same bits again"
        strided = many.t().contiguous().t()[None]
        torch.testing.assert_close(map_.gelu(strided), F.gelu(plain(many))[None])
        torch.testing.assert_close(
            map_.plus(strided, few.new_ones(1, 1, OUTER)), 1 + plain(strided)
        )


@needs_packing
def test_bfloat16_sums_residuals_in_float32() -> None:
    if not packs(torch.bfloat16):
        pytest.skip("no bfloat16 products here")
    map_ = linear().to(torch.bfloat16)
    map_.pack()
    count = LEAST_WORK // (INNER * OUTER) + 1
    x, residual = rows(count, INNER), rows(count, OUTER, 2)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        found = map_.plus(x, residual)
        assert map_(x).dtype == torch.bfloat16
    assert found.dtype == torch.float32
    exact = residual + F.linear(x, map_.weight.float(), map_.bias.float())
    torch.testing.assert_close(found, exact, rtol=0, atol=5e-2)


@needs_packing
def test_copies_and_pickles_hold_plain_weights_alone() -> None:
    map_ = linear()
    map_.pack()
    for other in (copy.deepcopy(map_), pickle.loads(pickle.dumps(map_))):  # noqa: S301
        assert other._packed is None
        assert torch.equal(other.weight, map_.weight)
    assert [*map_.state_dict()] == ["weight", "bias"]


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has tried no product."""
    monkeypatch.setattr(products, "_TRIED", {})


@needs_packing
@pytest.mark.parametrize("off", [1.001, math.nan])
def test_products_that_are_wrong_from_the_start_end_packing(
    monkeypatch: pytest.MonkeyPatch, untried: None, off: float
) -> None:
    """What another processor's library might give."""
    real = products._product
    monkeypatch.setattr(products, "_product", lambda *given: off * real(*given))
    network = nn.Sequential(linear(), Linear(OUTER, INNER))
    assert pack(network) == 0
    assert all(isinstance(x, Linear) and x._packed is None for x in network)
    assert not packs(torch.float32), "jobs started from here say so"
    assert products.wrong_products(torch.float32) == 1
    assert products.wrong_products(torch.bfloat16) == 0


@needs_packing
@pytest.mark.parametrize("which", ["gelu", "none", "plus"])
def test_a_shape_that_is_wrong_for_many_rows_is_plain_for_every_checkpoint(
    monkeypatch: pytest.MonkeyPatch, untried: None, which: str
) -> None:
    monkeypatch.setattr(products, "takes_in_gelu", lambda: True)
    real, plus = products._product, Linear.plus
    many = 2 * LEAST_WORK // (INNER * OUTER)

    def wrong(x: Tensor, packed: Tensor, bias: Tensor | None, then: str) -> Tensor:
        hit = then == which and packed.shape[0] == OUTER and len(x) > many
        return real(x, packed, bias, then) * (1.001 if hit else 1)

    def wrong_sum(map_: Linear, x: Tensor, residual: Tensor) -> Tensor:
        hit = which == "plus" and map_._packed is not None and map_.out_features == OUTER
        return plus(map_, x, residual) * (1.001 if hit and len(x) > many else 1)

    monkeypatch.setattr(products, "_product", wrong)
    monkeypatch.setattr(Linear, "plus", wrong_sum)
    network = nn.Sequential(linear(), Linear(OUTER, INNER))
    for _ in range(2):
        assert pack(network) == INNER * OUTER * 4
        assert linear().pack() == 0
    assert packs(torch.float32), "of the shapes that are tried first"
    assert products.wrong_products(torch.float32) == 1
