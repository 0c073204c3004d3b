"""The paper's mathematics as pure functions on tensors: no I/O, no wire, no models."""
