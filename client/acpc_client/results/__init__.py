"""Answers: the contract's records, and what the client adds to them."""
