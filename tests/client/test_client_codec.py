"""Arrays on the wire: exact bytes, exact errors."""

from typing import Any

import numpy as np
import pytest
from acpc.contract import PoolCertificate, read_tensor, write_tensor
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1 import tensor_pb2
from acpc_client.errors import ArgumentError, MalformedAnswer
from acpc_client.results import read_answer
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

pytestmark = pytest.mark.edge

DTYPES = ["uint8", "int32", "int64", "float16", "float32", "float64", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.data(), hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4))
def test_a_round_trip_changes_no_bit(dtype: str, data: st.DataObject, shape: hnp.Shape) -> None:
    array = data.draw(hnp.arrays(dtype, shape))
    sent = write_tensor(array, "x").SerializeToString()
    back = read_tensor(tensor_pb2.Tensor.FromString(sent), "x")
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


def test_bytes_are_little_endian_and_c_contiguous_whatever_the_layout() -> None:
    plain = np.array([[1, 2, 3], [4, 5, 6]], dtype="<i4")
    wanted = b"".join(int(v).to_bytes(4, "little") for v in [1, 2, 3, 4, 5, 6])
    strided = np.repeat(plain, 2, 1)[:, ::2]
    for array in (plain, plain.astype(">i4"), np.asfortranarray(plain), strided):
        message = write_tensor(array, "x")
        assert message.data == wanted
        assert list(message.shape) == [2, 3]
        assert message.dtype == tensor_pb2.DTYPE_INT32


@pytest.mark.parametrize("array", [np.zeros(2, complex), np.array(["a"]), np.array([object()])])
def test_a_dtype_without_a_place_on_the_wire_is_refused_by_name(array: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match=r"^history: dtype .* cannot be sent") as caught:
        write_tensor(array, "history")
    assert caught.value.field == "history"
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dtype": tensor_pb2.DTYPE_FLOAT64, "shape": [2], "data": b"1" * 15}, "data: 15 bytes"),
        ({"dtype": tensor_pb2.DTYPE_FLOAT64, "shape": [-1]}, "shape: negative"),
        ({"dtype": 99, "shape": [1], "data": b"1"}, r"dtype: found 99; wanted 1 \(uint8\), "),
        ({}, r"dtype: found no tensor, or one without a dtype; wanted 1 \(uint8\), "),
    ],
)
def test_an_answer_that_breaks_the_contract_yields_no_number(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(MalformedAnswer, match=rf"^clean_costs\.{words}"):
        read_answer(PoolCertificate, pb.CertifyPoolResponse(clean_costs=fields))
