"""The ACPC diagnostic server."""
