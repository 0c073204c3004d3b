"""A blocking client whose server is away connects to the next one while it waits to try again."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import processes
import pytest
from acpc.v1 import checkpoint_service_pb2 as pb
from credentials import Authority

pytestmark = pytest.mark.process
# gRPC looks after a channel by itself every five seconds; here it never does.
UNATTENDED = {**os.environ, "GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS": "0"}
CLIENT = """
import sys
from acpc_client import AcpcClient, Tls
from acpc_client.retries import RetryPolicy

class Told(RetryPolicy):
    def delay(self, error, failures):
        print("away", flush=True)
        return super().delay(error, failures)

retry = Told(attempts=10**6, maximum=0.2)
with AcpcClient(sys.argv[1], tls=Tls(sys.argv[2]), retry=retry, timeout=60) as client:
    for _ in sys.stdin:
        print("answered", len([*client.checkpoints.list()]), flush=True)
"""


class Empty(grpc.GenericRpcHandler):
    """Answers every call with a message that says nothing."""

    def service(self, _: object) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(
            lambda *_: pb.ListCheckpointsResponse().SerializeToString()
        )


@contextmanager
def serving(port: int, key: bytes, certificate: bytes) -> Iterator[int]:
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Empty()])
    credentials = grpc.ssl_server_credentials([(key, certificate)])
    bound = server.add_secure_port(f"localhost:{port}", credentials)
    server.start()
    try:
        yield bound
    finally:
        server.stop(0).wait()


def test_a_restarted_server_is_found_without_a_call_under_way(tmp_path: Path) -> None:
    authority = Authority()
    files = authority.issue("localhost").write(tmp_path, "server")
    certificate, key = (Path(file).read_bytes() for file in files)
    ca = authority.write(tmp_path, "ca")[0]
    with ExitStack() as opened:
        with serving(0, key, certificate) as port:
            command = [sys.executable, "-c", CLIENT, f"localhost:{port}", ca]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            client = opened.enter_context(
                processes.running(command, bufsize=1, env=UNATTENDED, **pipes)
            )
            client.stdin.write("list\n")
            assert client.stdout.readline() == "answered 0\n"
        client.stdin.write("list\n")
        assert client.stdout.readline() == client.stdout.readline() == "away\n"
        with serving(port, key, certificate):
            said = iter(client.stdout.readline, "")
            assert next((line for line in said if line != "away\n"), "") == "answered 0\n"
