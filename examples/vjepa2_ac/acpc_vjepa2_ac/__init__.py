"""V-JEPA 2-AC, the action-conditioned world model over V-JEPA 2, for acpc-server."""
