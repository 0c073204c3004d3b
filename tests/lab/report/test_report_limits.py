"""The report's table and figure of the severity up to which each checkpoint passes."""

import pytest
from acpc_lab.report import ReportData, render
from acpc_lab.report.figures import plates
from acpc_lab.report.verdicts import limit_table
from report_samples import T_IR, judged, measured, side

SEVERITIES = (0.02, 0.05, 0.08, 0.12)
# Where relative IR reaches its threshold, in proportion to the severity.
BREAKS_AT = {"two-a": 0.06, "two-b": 0.5}


def limits() -> ReportData:
    reference = side("two-base", 1.0, 50.0)
    at = [(f"gaussian_noise:{x}", x) for x in SEVERITIES] + [("blur:5", 0.05)]
    cells = [
        measured(name, shift, judged(side(name, T_IR * x / limit, 50.0), reference, shift=shift))
        for name, limit in BREAKS_AT.items()
        for shift, x in at
    ]
    return ReportData(title="Limits", cells=tuple(cells))


def one_severity(data: ReportData) -> ReportData:
    return data.with_(cells=tuple(c for c in data.cells if c.shift == "blur:5"))


def test_a_checkpoint_has_a_row_and_a_kind_of_several_severities_a_column() -> None:
    data = limits()
    table = limit_table(data)
    assert table is not None and table.curves == ("gaussian_noise",)
    (first, (breaks,)), (second, (holds,)) = table.rows
    assert (first, second) == tuple(BREAKS_AT)
    assert breaks is not None and breaks.broken_by == "IR"
    assert breaks.estimate == 0.05
    assert breaks.holds < 0.06 < (breaks.breaks or 0)
    assert holds is not None and holds.brief == "0.12 or more"
    (plate,) = (plate for plate in plates(data) if plate.key == "limits")
    assert [panel.title for panel in plate.panels] == ["gaussian_noise"]


@pytest.mark.process
def test_the_page_has_the_section_only_where_there_are_limits() -> None:
    page = render(data := limits())
    table = limit_table(data)
    assert table is not None and table.rows[0][1][0] is not None
    assert "Up to which severity" in page and table.rows[0][1][0].interval in page
    assert "Up to which severity" not in render(one_severity(data))
