"""Durable long-running work."""

from acpc_server.jobs.record import Job, JobFailure, JobState, Progress
from acpc_server.jobs.service import JobService

__all__ = ["Job", "JobFailure", "JobService", "JobState", "Progress"]
