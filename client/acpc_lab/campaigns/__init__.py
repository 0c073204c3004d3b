"""Submits tasks as jobs, follows them, and resumes them after any interruption.

A sweep's cells, a study's checkpoints and a training callback's epochs are such tasks.
"""

from acpc_lab.campaigns.campaign import (
    ENDED_BADLY,
    POLL_S,
    Campaign,
    CampaignProgress,
    Link,
    OnUpdate,
    Options,
    OutOfTime,
    Stopped,
    T,
    Task,
)
from acpc_lab.campaigns.states import Entry, TaskState, counted

__all__ = [
    "Campaign", "CampaignProgress", "Entry", "Link", "Options", "OutOfTime", "Stopped", "Task",
    "TaskState", "counted",
]  # fmt: skip
