"""The wire contract of the ACPC diagnostic service."""
