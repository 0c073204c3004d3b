"""Schedules a device: admission by queued seconds, and one queue with dynamic batching."""

from acpc_server.scheduling.admission import RETRY_SECONDS, WAIT_SHARE, Admission, most_of_one
from acpc_server.scheduling.context import Priority, RequestContext
from acpc_server.scheduling.queue import CallKind, DeviceQueue, Work, late, settle
from acpc_server.scheduling.serving_options import DEFAULT_SERVING, ServingOptions
from acpc_server.scheduling.turns import Turns
