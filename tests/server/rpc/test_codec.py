"""Law: any Tensor message is an array equal to what was sent, or a refusal that names the field."""

import numpy as np
import pytest
from acpc.contract import Axes, Identity, PerturbationSet, check, read_tensor, write_tensor
from acpc.contract.requests import MAX_VIEWS
from acpc.v1 import tensor_pb2
from acpc_server.errors import InvalidArgument
from hypothesis import given, settings
from hypothesis import strategies as st


def read_floats(values: np.ndarray) -> np.ndarray:
    axes = Axes("a, b", of_frames=False)
    read = axes.converted(read_tensor(write_tensor(values), "x"))
    axes.check(read, "x")
    return read


@settings(max_examples=300)
@given(
    dtype=st.integers(-(2**31), 2**31 - 1) | st.integers(0, 8),
    shape=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 5), max_size=70),
    data=st.binary(max_size=64),
)
def test_any_message_is_read_or_refused(dtype: int, shape: list[int], data: bytes) -> None:
    message = tensor_pb2.Tensor(dtype=dtype, shape=shape, data=data)
    try:
        array = read_tensor(message, "field")
    except InvalidArgument as error:
        (violation,) = error.violations
        assert violation.field in ("field.dtype", "field.shape", "field.data")
        assert len(error.message) < 1000
    else:
        assert list(array.shape) == shape
        assert array.tobytes() == data


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_floats_are_float32(dtype: str) -> None:
    values = np.array([[0.5, -2.0]], dtype)
    read = read_floats(values)
    assert read.dtype == np.float32
    assert (read == values).all()


def test_floats_name_the_first_bad_index() -> None:
    values = np.zeros((2, 3), np.float32)
    values[1, 0] = np.inf
    values[1, 2] = np.nan
    with pytest.raises(InvalidArgument, match=r"x\.data: not finite in float32 at index \[1, 0\]"):
        read_floats(values)


def test_views_are_bounded_by_product() -> None:
    most = MAX_VIEWS // 4
    check(PerturbationSet((Identity(),) * 4, draws=most))
    with pytest.raises(InvalidArgument, match="draws"):
        check(PerturbationSet((Identity(),) * 4, draws=most + 1))
