"""Durable long-running work, on one host or many."""

from acpc_server.jobs.kind import JobKind, JobSpec, Json, Step, pack, unpack
from acpc_server.jobs.lease import LeaseTerms
from acpc_server.jobs.record import Job, JobFailure, JobFilter, JobState, Progress
from acpc_server.jobs.service import JobOptions, JobService
