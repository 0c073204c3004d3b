"""Durable long-running work, on one host or many."""

from acpc_server.jobs.lease import LeaseTerms
from acpc_server.jobs.record import Job, JobFailure, JobFilter, JobState, Progress
from acpc_server.jobs.service import JobService

__all__ = [
    "Job",
    "JobFailure",
    "JobFilter",
    "JobService",
    "JobState",
    "LeaseTerms",
    "Progress",
]
