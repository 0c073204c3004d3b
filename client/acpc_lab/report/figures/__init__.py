"""The figures of a report, each a plate of panels that share a caption and a legend."""

from __future__ import annotations

from acpc_lab.report.figures.distributions import distributions, steps
from acpc_lab.report.figures.levels import levels
from acpc_lab.report.figures.plane import limits, plane
from acpc_lab.report.figures.plate import Key, Plate
from acpc_lab.report.model import ReportData


def plates(data: ReportData) -> list[Plate]:
    """Every figure that the data has values for, in the order of the page."""
    drawn = [
        *(levels(data, shift) for shift in data.shifts if data.has_levels),
        limits(data),
        plane(data),
        *(distributions(data, shift) for shift in data.shifts),
        *(steps(data, shift) for shift in data.shifts),
    ]
    return [plate for plate in drawn if plate.panels]
