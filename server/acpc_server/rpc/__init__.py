"""The wire: servicers, error mapping."""

from acpc_server.rpc.anchor import AnchorServicer
from acpc_server.rpc.checkpoint import CheckpointServicer
from acpc_server.rpc.diagnostic import DiagnosticServicer
from acpc_server.rpc.interceptor import Guard
from acpc_server.rpc.operations import OperationsServicer, OperationWriter
from acpc_server.rpc.scoring import ScoringServicer, StudyServicer
