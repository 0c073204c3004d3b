"""The blocking client."""

from acpc_client.sync.anchors import Anchors
from acpc_client.sync.client import AcpcClient
from acpc_client.sync.resources import ScoreJob, StudyJob
from acpc_client.sync.session import PlanSession
from acpc_client.sync.streams import Feed
from acpc_client.sync.transport import SyncTransport
