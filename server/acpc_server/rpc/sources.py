"""Where anchors come from, in and out of the wire's messages."""

from __future__ import annotations

from typing import Any, TypeAlias

from acpc.v1 import anchor_service_pb2 as pb
from acpc.v1 import scoring_service_pb2, study_service_pb2

from acpc_server.data import AnchorSource
from acpc_server.encoding import AnchorReaders, AnchorSetSource, AnySource
from acpc_server.errors import InvalidArgument
from acpc_server.rpc.request import MAX_NAME

MAX_ANCHORS = 100_000

Sourced: TypeAlias = scoring_service_pb2.ScoreCheckpointRequest | study_service_pb2.RunStudyRequest


def read_source(request: Sourced, readers: AnchorReaders, *, least: int) -> AnySource:
    """The source of a job's anchors: ``dataset`` or ``anchor_set``.

    Args:
        request: Has either field.
        readers: Knows the anchor sets.
        least: Fewest anchors that make sense.

    Raises:
        InvalidArgument: Neither is given, or a value is outside its range; names the field.
        NotFound: There is no such anchor set.
    """
    kind = request.WhichOneof("anchors")
    if kind is None:
        raise InvalidArgument(
            "dataset", "name a dataset to draw anchors from, or give the digest of an anchor_set"
        )
    if kind == "dataset":
        return read_dataset(request.dataset, "dataset", least=least)
    try:
        source = readers.named_set(request.anchor_set)
    except InvalidArgument as error:
        raise error.moved("digest", "anchor_set") from error
    if not least <= source.count <= MAX_ANCHORS:
        raise InvalidArgument(
            "anchor_set", f"its {source.count} anchors are not in {least} to {MAX_ANCHORS}"
        )
    return source


def write_source(source: AnySource) -> dict[str, Any]:
    """The field of a job's request that names its anchors."""
    if isinstance(source, AnchorSetSource):
        return {"anchor_set": source.digest}
    return {"dataset": pb.DatasetAnchors(**source.model_dump())}


def read_dataset(message: pb.DatasetAnchors, field: str, *, least: int) -> AnchorSource:
    """Anchors of a dataset; what is absent has the paper's value.

    Args:
        message: The source.
        field: Request field that carries it, for the error.
        least: Fewest anchors that make sense.

    Raises:
        InvalidArgument: A value outside its range; names the field.
    """
    for name in ("dataset", "task"):
        if not 1 <= len(getattr(message, name)) <= MAX_NAME:
            raise InvalidArgument(f"{field}.{name}", f"give 1 to {MAX_NAME} characters")
    given = {
        name: getattr(message, name)
        for name in ("count", "seed", "frameskip", "one_per_episode")
        if message.HasField(name)
    }
    source = AnchorSource(dataset=message.dataset, task=message.task, **given)
    if not least <= source.count <= MAX_ANCHORS:
        raise InvalidArgument(
            f"{field}.count", f"{source.count} is not in {least} to {MAX_ANCHORS}"
        )
    if source.seed >= 2**63:
        raise InvalidArgument(f"{field}.seed", f"{source.seed} does not fit a signed 64-bit number")
    if source.frameskip == 0:
        raise InvalidArgument(f"{field}.frameskip", "must be at least 1")
    return source
