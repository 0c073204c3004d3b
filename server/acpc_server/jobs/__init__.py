"""Durable long-running work, on one host or many."""

from acpc_server.jobs.kind import (
    Job,
    JobFilter,
    JobKind,
    JobSpec,
    JobState,
    Json,
    Progress,
    Step,
    pack,
    unpack,
)
from acpc_server.jobs.lease import LeaseTerms
from acpc_server.jobs.service import JobOptions, JobService, is_id
