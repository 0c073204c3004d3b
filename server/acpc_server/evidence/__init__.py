"""Tells how sure a score or a certificate is, by intervals, p-values and verdicts; and drift."""

from acpc.evidence import CheckpointSample

from acpc_server.evidence.coverage import CoverageSequence, CoverageTest, error_share
from acpc_server.evidence.drift import DriftTerms, DriftWatch, Reference, clipped
from acpc_server.evidence.judging import (
    SPENDING,
    LookResult,
    draws_are_shared,
    judge,
    other_population,
    take_look,
)
from acpc_server.evidence.numbers import METHODS
