"""Thin client of the ACPC diagnostic service."""
