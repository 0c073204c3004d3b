"""Durable long-running work, on one host or many."""

from acpc_server.jobs.kind import (
    NOBODY,
    Job,
    JobFailure,
    JobFilter,
    JobKind,
    JobSpec,
    JobState,
    Json,
    Owner,
    Progress,
    Step,
    pack,
    unpack,
)
from acpc_server.jobs.lease import LeaseTerms
from acpc_server.jobs.service import JobOptions, JobService
