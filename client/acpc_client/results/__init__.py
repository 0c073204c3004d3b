"""Answers: the contract's records, and what the client adds to them."""

from acpc_client.results.base import read_answer
from acpc_client.results.operations import Operation
from acpc_client.results.outcomes import PairOutcome, UploadProgress
from acpc_client.results.studies import StudyResult
