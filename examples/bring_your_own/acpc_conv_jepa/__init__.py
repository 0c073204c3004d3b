"""Convolutional JEPA world models for acpc-server."""
