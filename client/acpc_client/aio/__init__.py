"""The asyncio client."""

from acpc_client.aio.client import AsyncAcpcClient
from acpc_client.aio.resources import AsyncScoreJob, AsyncStudyJob
from acpc_client.aio.session import AsyncPlanSession
