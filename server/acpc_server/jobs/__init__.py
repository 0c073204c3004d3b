"""Durable long-running work, on one host or many."""

from acpc_server.jobs.kind import Json, Step
from acpc_server.jobs.lease import LeaseTerms
from acpc_server.jobs.packing import pack, unpack
from acpc_server.jobs.plan import CheckpointName, JobPlan
from acpc_server.jobs.record import Job, JobFailure, JobFilter, JobState, Progress
from acpc_server.jobs.service import JobService
