"""Tells how sure a score or a certificate is, by intervals, p-values and verdicts."""

from acpc.evidence import CheckpointSample

from acpc_server.evidence.exact import most_uncertified
from acpc_server.evidence.fit import METHOD as FIT_METHOD
from acpc_server.evidence.fit import FitErrors, Variant, judge_fit
from acpc_server.evidence.judging import (
    SPENDING,
    LookResult,
    draws_are_shared,
    judge,
    other_population,
    take_look,
)
from acpc_server.evidence.numbers import METHODS
