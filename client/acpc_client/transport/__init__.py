"""Channels, deadlines and the input and output of both clients."""
