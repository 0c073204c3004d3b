"""AnchorService: in the contract, not in this release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import grpc
from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1 import anchor_service_pb2_grpc as pb_grpc

from acpc_server.errors import Unimplemented


class AnchorServicer(pb_grpc.AnchorServiceServicer):
    """Refuses every call with a reason, so that callers see a plan and not a typo."""

    def UploadAnchors(
        self, request_iterator: Iterator[pb.UploadAnchorsRequest], context: grpc.ServicerContext
    ) -> NoReturn:
        """Refuse."""
        _refuse()

    def GetUpload(self, request: pb.GetUploadRequest, context: grpc.ServicerContext) -> NoReturn:
        """Refuse."""
        _refuse()

    def CreateAnchorSet(
        self, request: pb.CreateAnchorSetRequest, context: grpc.ServicerContext
    ) -> NoReturn:
        """Refuse."""
        _refuse()

    def GetAnchorSet(
        self, request: pb.GetAnchorSetRequest, context: grpc.ServicerContext
    ) -> NoReturn:
        """Refuse."""
        _refuse()

    def ListAnchorSets(
        self, request: pb.ListAnchorSetsRequest, context: grpc.ServicerContext
    ) -> NoReturn:
        """Refuse."""
        _refuse()

    def DeleteAnchorSet(
        self, request: pb.DeleteAnchorSetRequest, context: grpc.ServicerContext
    ) -> NoReturn:
        """Refuse."""
        _refuse()


def _refuse() -> NoReturn:
    raise Unimplemented(
        "anchor sets are in the contract but not in this release; score from a dataset instead"
    )
