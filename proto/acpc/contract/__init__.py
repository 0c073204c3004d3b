"""What the contract means, declared once for server and client: NumPy and protobuf only."""

from acpc.contract.checkpoints import Checkpoint, CheckpointState, LoadedCheckpoint, ModelCard
from acpc.contract.enums import CemReturn, CostReduction, NumericMode, WireEnum
from acpc.contract.errors import ContractError
from acpc.contract.jobs import JobState, Progress
from acpc.contract.messages import Codec, Wire
from acpc.contract.pairs import ErrorDrift, PairComparison, PairResult
from acpc.contract.pools import (
    CertifiedSeverity,
    PairedIteration,
    PairedPlan,
    PairedPlans,
    PoolCertificate,
    SampledPool,
    SelectionCertificate,
    ViewCertificate,
)
from acpc.contract.provenance import Receipt, Timing
from acpc.contract.record import Record
from acpc.contract.tensor import read_tensor, write_tensor

__all__ = [
    "CemReturn",
    "CertifiedSeverity",
    "Checkpoint",
    "CheckpointState",
    "Codec",
    "ContractError",
    "CostReduction",
    "ErrorDrift",
    "JobState",
    "LoadedCheckpoint",
    "ModelCard",
    "NumericMode",
    "PairComparison",
    "PairResult",
    "PairedIteration",
    "PairedPlan",
    "PairedPlans",
    "PoolCertificate",
    "Progress",
    "Receipt",
    "Record",
    "SampledPool",
    "SelectionCertificate",
    "Timing",
    "ViewCertificate",
    "Wire",
    "WireEnum",
    "read_tensor",
    "write_tensor",
]
