"""The blocking client: all but wire.py and streams.py is made by client/unasync.py."""

from acpc_client.sync.client import AcpcClient
from acpc_client.sync.resources import ScoreJob, StudyJob
from acpc_client.sync.session import PlanSession
from acpc_client.sync.streams import send_upload
from acpc_client.sync.transport import SyncTransport
