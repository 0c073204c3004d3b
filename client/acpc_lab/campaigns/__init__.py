"""Campaigns: tasks that are submitted, followed, resumed and written down, whatever they are.

A sweep's cells, a study's checkpoints and a training callback's epochs are tasks of one engine.
"""

from acpc_lab.campaigns.campaign import Campaign, Options, Records
from acpc_lab.campaigns.journal import Entry, Journal, TaskState
from acpc_lab.campaigns.link import Link, OutOfTime, Stopped, check_options
from acpc_lab.campaigns.progress import CampaignProgress, OnUpdate, T, Task, TaskStatus

__all__ = [
    "Campaign", "CampaignProgress", "Entry", "Journal", "Link", "Options", "OutOfTime", "Records",
    "Stopped", "Task", "TaskState", "TaskStatus", "check_options",
]  # fmt: skip
