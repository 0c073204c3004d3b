"""Metrics, logs and probes. Imports no other room of the server."""

from acpc_server.observe.health import HttpEndpoint, ServerHealth
from acpc_server.observe.logs import configure_logs, log_call
from acpc_server.observe.metrics import Metrics, Shift
from acpc_server.observe.traces import CallSpan, begin_span, start_traces, stop_traces
