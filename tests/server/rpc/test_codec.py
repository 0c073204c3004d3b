"""Law: any Tensor message is an array equal to what was sent, or a refusal that names the field."""

import numpy as np
import pytest
from acpc.v1 import perturbation_pb2, tensor_pb2
from acpc_server.errors import InvalidArgument
from acpc_server.perturb import GaussianBlur, GaussianNoise, Identity, Resize
from acpc_server.rpc import codec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

DTYPES = st.sampled_from(["u1", "<i4", "<i8", "<f2", "<f4", "<f8", "?"]).map(np.dtype)
SHAPES = arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)


@given(arrays.arrays(DTYPES, SHAPES))
def test_a_tensor_survives_the_wire(array: np.ndarray) -> None:
    sent = codec.write_tensor(array).SerializeToString()
    read = codec.read_tensor(tensor_pb2.Tensor.FromString(sent), "x")
    assert (read.dtype, read.shape) == (array.dtype, array.shape)
    assert read.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=">f4").reshape(3, 4),
        np.asfortranarray(np.arange(12, dtype="f8").reshape(3, 4)),
        np.arange(12, dtype="i8")[::-2],
    ],
    ids=["big-endian", "column-major", "strided"],
)
def test_layout_is_not_sent(array: np.ndarray) -> None:
    assert (codec.read_tensor(codec.write_tensor(array), "x") == array).all()


@settings(max_examples=300)
@given(
    dtype=st.integers(-(2**31), 2**31 - 1) | st.integers(0, 8),
    shape=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 5), max_size=70),
    data=st.binary(max_size=64),
)
def test_any_message_is_read_or_refused(dtype: int, shape: list[int], data: bytes) -> None:
    message = tensor_pb2.Tensor(dtype=dtype, shape=shape, data=data)
    try:
        array = codec.read_tensor(message, "field")
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
    read = codec.read_floats(codec.write_tensor(values), "x", "a, b")
    assert read.dtype == np.float32
    assert (read == values).all()


def test_floats_name_the_first_bad_index() -> None:
    values = np.zeros((2, 3), np.float32)
    values[1, 0] = np.inf
    values[1, 2] = np.nan
    with pytest.raises(InvalidArgument, match=r"x\.data: not finite in float32 at index \[1, 0\]"):
        codec.read_floats(codec.write_tensor(values), "x", "a, b")


@pytest.mark.parametrize(
    ("message", "spec"),
    [
        ({"identity": {}}, Identity()),
        ({"gaussian_noise": {"sigma": 0.08}}, GaussianNoise(sigma=0.08)),
        ({"gaussian_blur": {"kernel_size": 14}}, GaussianBlur(kernel_size=15)),
        ({"resize": {"scale": 0.25}}, Resize(scale=0.25)),
    ],
)
def test_specs(message: dict[str, dict[str, float]], spec: object) -> None:
    assert codec.read_spec(perturbation_pb2.PerturbationSpec(**message), "x") == spec


def test_every_kind_of_the_contract_has_a_spec() -> None:
    """A kind added to the contract must reach the perturbation room, not an unknown-kind error."""
    kinds = perturbation_pb2.PerturbationSpec.DESCRIPTOR.oneofs_by_name["kind"].fields
    for kind in kinds:
        message = perturbation_pb2.PerturbationSpec()
        getattr(message, kind.name).SetInParent()
        try:
            spec = codec.read_spec(message, "x")
        except InvalidArgument as error:
            assert error.field.startswith(f"x.{kind.name}.")
        else:
            assert spec.kind == kind.name


def test_views_are_bounded_by_product() -> None:
    spec = perturbation_pb2.PerturbationSpec(identity=perturbation_pb2.Identity())
    most = perturbation_pb2.PerturbationSet(specs=[spec] * 4, draws=codec.MAX_VIEWS // 4)
    assert codec.read_perturbations(most, "x").draws == codec.MAX_VIEWS // 4
    most.draws += 1
    with pytest.raises(InvalidArgument, match=r"x\.draws"):
        codec.read_perturbations(most, "x")
