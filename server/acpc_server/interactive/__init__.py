"""Comparisons, certificates and planning sessions, answered while the caller waits."""

from acpc_server.interactive.certify import MeasuredPool, certify_pool, draw_pool
from acpc_server.interactive.compare import PairComparer
from acpc_server.interactive.coverage import cover_pool
from acpc_server.interactive.drift import DriftMonitor
from acpc_server.interactive.paired_cem import RETURNS, PairedCem
from acpc_server.interactive.planning import Planner, PlanningSession
