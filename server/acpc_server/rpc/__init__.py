"""The wire: the door, servicers, error mapping."""

from acpc_server.rpc.anchor import AnchorServicer
from acpc_server.rpc.call import Call
from acpc_server.rpc.catalog import CatalogServicer
from acpc_server.rpc.diagnostic import DiagnosticServicer
from acpc_server.rpc.door import Door
from acpc_server.rpc.following import JobFollowers
from acpc_server.rpc.jobs import JobServicer
from acpc_server.rpc.limits import Limits, ReadLimit, Workers
from acpc_server.rpc.operations import OperationWriter
from acpc_server.rpc.overview import Overview
from acpc_server.rpc.probes import HealthService, Reflection, reflection_versions
