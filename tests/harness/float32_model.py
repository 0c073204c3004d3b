"""A model of a family that has no float64, as plug-ins written before that mode have none."""

from acpc_server.models import FrozenWorldModel


class Float32Model:
    def __init__(self, model: FrozenWorldModel) -> None:
        self.card, self.device = model.card, model.device
        self.encode, self.embed_actions = model.encode, model.embed_actions
        self.predict_next = model.predict_next
