"""Comparisons, certificates and planners' moments, answered while the caller waits."""

from acpc_server.interactive.certify import pool_work
from acpc_server.interactive.compare import PairComparer
from acpc_server.interactive.moment import EncodedMoment, Moment
from acpc_server.interactive.paired_cem import RETURNS, PairedCem, check_budget
from acpc_server.interactive.planning import Planner, draw_pool
