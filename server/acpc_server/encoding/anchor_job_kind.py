"""Common part of the kinds of job that measure a checkpoint on anchors."""

from __future__ import annotations

from acpc.contract import CheckpointRef

from acpc_server.encoding.anchor_job import AnchorJobSpec
from acpc_server.encoding.anchor_readers import AnchorReaders
from acpc_server.engine import CheckpointCache, DeviceEngine, LoadedCheckpoint


class AnchorJobKind:
    """Base of the kinds: where their checkpoints and anchors come from.

    Args:
        engine: Owner of the device.
        checkpoints: Loaded checkpoints.
        readers: Opens the anchors.
    """

    def __init__(
        self, engine: DeviceEngine, checkpoints: CheckpointCache, readers: AnchorReaders
    ) -> None:
        self.engine = engine
        self.readers = readers
        self._checkpoints = checkpoints

    def loaded(self, named: CheckpointRef) -> LoadedCheckpoint:
        """A checkpoint as it was when its job was accepted.

        Raises:
            FailedPrecondition: Its files have been replaced since.
        """
        return self._checkpoints.get(named.name, named.weights, named.digest)

    def stamp(self, spec: AnchorJobSpec) -> str:
        """Changes when the anchors' data is replaced or written to.

        Raises:
            InvalidArgument, NotFound, PermissionDenied, FailedPrecondition: It cannot be found.
        """
        return self.readers.stamp(spec.anchors)

    def labels(self, spec: AnchorJobSpec) -> dict[str, str]:
        """The checkpoint's name."""
        return {"checkpoint": spec.checkpoint.name}
