"""The studies' figures, in the paper's manner and in the report's colours.

Each module draws the study of its name: ``draw(evidence)`` gives its figures by name. They need
the lab's extras and are deterministic.
"""
