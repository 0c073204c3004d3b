"""Submits tasks as jobs, follows them, resumes them after any interruption, and keeps a journal.

A sweep's cells, a study's checkpoints and a training callback's epochs are such tasks.
"""

from acpc_lab.campaigns.campaign import (
    ENDED_BADLY,
    Campaign,
    CampaignProgress,
    Link,
    OnUpdate,
    Options,
    OutOfTime,
    Stopped,
    T,
    Task,
    check_options,
)
from acpc_lab.campaigns.journal import UNREADABLE, Entry, Journal, TaskState, counted

__all__ = [
    "Campaign", "CampaignProgress", "Entry", "Journal", "Link", "Options", "OutOfTime", "Stopped",
    "Task", "TaskState", "check_options", "counted",
]  # fmt: skip
