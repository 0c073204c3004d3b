"""What the contract means, declared once for server and client: NumPy and protobuf only."""

from acpc.contract.enums import CemReturn, CostReduction, NumericMode, WireEnum
from acpc.contract.errors import ContractError
from acpc.contract.messages import Codec, Wire
from acpc.contract.record import Record
from acpc.contract.tensor import read_tensor, write_tensor

__all__ = [
    "CemReturn",
    "Codec",
    "ContractError",
    "CostReduction",
    "NumericMode",
    "Record",
    "Wire",
    "WireEnum",
    "read_tensor",
    "write_tensor",
]
