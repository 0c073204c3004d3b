"""Which factor breaks which checkpoint: from known rows."""

import re
from dataclasses import replace

import numpy as np
import pytest
from acpc_client import Outcome
from acpc_lab.evidence import FamilyWise
from acpc_lab.factors import CertifiedShare
from acpc_lab.plotting import panel, styled
from acpc_lab.report import ReportData, render, with_certified
from acpc_lab.report.factors import FactorSection, factor_section
from acpc_lab.report.figures import plates
from acpc_lab.report.model import Measurement, Share
from report_samples import judged, side, with_evidence

LEVELS = (1 / 3, 2 / 3, 1.0)
# By checkpoint and factor: how far each level pushes the radii.
PUSH = {
    "plain": {"colour": (0.5, 1.5, 3.0), "light": (0.3, 0.4, 0.5)},
    "varied": {"colour": (0.05, 0.06, 0.07), "light": (0.04, 0.1, 0.9)},
}


def sample(*, certified: bool = False) -> ReportData:
    cells = []
    for name, factors in PUSH.items():
        for factor, pushes in factors.items():
            for level, push, other in zip(LEVELS, pushes, PUSH["plain"][factor], strict=True):
                shift = f"given_views:{factor}:{level:.4g}"
                reference = side("plain", other, 4.0)
                subject = side(name, push, 4.0)
                cells.append(
                    Measurement(
                        name=name,
                        shift=shift,
                        score=judged(subject, reference, shift=shift),
                        certified=Share(30, 40) if certified and name == "varied" else None,
                    )
                )
    return ReportData(title="Factors", cells=tuple(cells))


def section_of(data: ReportData) -> FactorSection:
    section = factor_section(data)
    assert section is not None
    return section


def test_the_mildest_level_that_breaks_each_checkpoint() -> None:
    """Relative IR of ``varied`` is 0.25 of the light at two thirds and beyond 1 at the last."""
    data = sample()
    section = section_of(data)
    assert section.factors == ("colour", "light")
    assert [f"{level:.2g}" for level in section.levels] == ["0.33", "0.67", "1"]
    onsets = {name: [(one.seen, one.sure) for one in found] for name, found in section.breaks}
    assert onsets["varied"] == [("holds", "surely up to 1"), ("from 1", "surely from 1")]
    sr = {cell.place: cell.value("sr") for cell in data.cells if cell.name == "plain"}
    first = next(x for x in LEVELS if sr["colour", float(f"{x:.4g}")] < 0.95)
    assert onsets["plain"][0] == (f"from {first:.2g}", "")  # a reference: by SR alone


def test_what_surely_passes_nowhere_is_undecided() -> None:
    """As failures say from where they are sure; without evidence nothing can be said to be."""
    data = sample()
    doubt = {"confident_outcome": Outcome.UNDECIDED, "p_passed": 0.5, "p_failed": 0.5}
    for changes, words in ((doubt, "undecided"), ({}, "holds")):
        found = data.with_(cells=tuple(with_evidence(cell, **changes) for cell in data.cells))
        onset = dict(section_of(found).breaks)["varied"][0]
        assert (onset.seen, onset.sure) == (words, "")


def test_tables_hold_every_number_with_its_interval_and_a_shade() -> None:
    section = section_of(sample(certified=True))
    ir, sr, certified = section.tables
    assert [table.title for table in section.tables] == ["Relative IR", "SR", "Certified fraction"]
    (colour, light) = (dict(table.rows)["colour"] for table in (ir, sr))
    assert all(re.fullmatch(r"raw \d\.\d+", heat.text) for heat in colour[:3])
    assert colour[3].text == f"{sample().cells[6].value('ir_relative'):.2f}"
    assert re.fullmatch(r"\d\.\d\d to \d\.\d\d", colour[3].interval)
    assert [heat.shade.partition("-")[0] for heat in colour[3:]] == ["pass"] * 3
    assert [heat.shade.partition("-")[0] for heat in dict(ir.rows)["light"][3:]] == [
        "pass", "pass", "fail",
    ]  # fmt: skip
    assert light[2].shade == "fail-4"  # SR of the plain one under the strongest colour
    share = dict(certified.rows)["light"]
    assert (share[0].text, share[3].text, share[3].tip) == ("", "0.75", "30 of 40 anchors")
    assert share[3].interval == "0.59 to 0.86"  # Wilson, outwards


def test_shares_of_other_weights_are_left_out_and_said() -> None:
    data = sample()
    digests = {c.name: c.score.receipt.checkpoint_digest for c in data.cells if c.score}
    shares = [
        CertifiedShare(name, "given_views:light:1", 30, 40, 2, known, "s", "v", "{}", "1", "", "")
        for name, known in ((name, digests[name] * (name == "plain")) for name in digests)
    ]
    found = with_certified(data, shares)
    assert {c.name for c in found.cells if c.certified} == {"plain"}
    assert found.notes == ("Certified fractions of varied are of other weights, and are left out.",)
    assert "server 1" in dict(section_of(found).tables[2].rows)["light"][2].tip


@pytest.mark.parametrize("certified", [False, True])
def test_the_figure_has_a_panel_for_each_factor_and_a_line_for_each_checkpoint(
    certified: bool,
) -> None:
    (plate,) = (plate for plate in plates(sample(certified=certified)) if plate.key == "factors")
    assert [shown.title for shown in plate.panels] == ["colour", "light"]
    assert plate.rows == 2 + certified
    with styled():
        figure = panel(plate.panels[0].draw, size=plate.size, rows=plate.rows)
    for axis, wanted in zip(figure.axes, (2, 2, 1), strict=False):
        lines = [line for line in axis.lines if len(line.get_xdata()) == 3]
        assert len(lines) == wanted
    assert [text.get_text() for text in figure.axes[-1].get_xticklabels()] == ["0.33", "0.67", "1"]


@pytest.mark.process
def test_the_page_has_the_section_only_where_there_are_factors() -> None:
    page = render(sample(certified=True))
    assert "Which factor breaks which checkpoint" in page
    assert page.index('id="factors"') < page.index('id="figures"')
    data = sample()
    other = tuple(replace(cell, shift="blur:5") for cell in data.cells[:1])
    assert factor_section(data.with_(cells=other)) is None
    assert "Which factor breaks" not in render(data.with_(cells=other))


@pytest.mark.process
def test_an_unfinished_sweep_has_a_section_too() -> None:
    data = sample()
    cells = [replace(cell, score=None, pending=True) for cell in data.cells[:1]] + [
        replace(cell, score=None, problem="failed") for cell in data.cells[1:2]
    ]
    section = section_of(data.with_(cells=(*cells, *data.cells[2:])))
    assert [heat.text for heat in dict(section.tables[1].rows)["colour"][:2]] == [
        "\N{HORIZONTAL ELLIPSIS}", "\N{MULTIPLICATION SIGN}",
    ]  # fmt: skip
    only = section_of(data.with_(cells=tuple(cells)))
    assert only.breaks[0][1][0].seen == "\N{EN DASH}"
    render(data.with_(cells=tuple(cells)))


@pytest.mark.parametrize(("family_wise", "most"), [(FamilyWise.HOLM, 0.11), (FamilyWise.NONE, 1.0)])
def test_a_sure_onset_is_rarely_wrong_in_any_cell(family_wise: FamilyWise, most: float) -> None:
    """Of cells that lie on the threshold, none fails; each by itself is said to now and then."""
    random, families, places = np.random.default_rng(5), 120, 42
    score = judged(side("varied", 3.0, 4.0), side("plain", 3.0, 4.0))
    assert score.evidence is not None
    wrong = 0
    for p_values in random.uniform(size=(families, places)):
        cells = [
            Measurement("varied", f"given_views:f{place}:1", replace(score, evidence=replace(
                score.evidence,
                p_failed=p,
                confident_outcome=Outcome.FAILED if p <= 0.05 else Outcome.UNDECIDED,
            )))
            for place, p in enumerate(p_values.tolist())
        ]  # fmt: skip
        data = ReportData("Null", tuple(cells), family_wise=family_wise)
        breaks = [one for _, found in section_of(data).breaks for one in found]
        wrong += any(one.sure for one in breaks)
    assert wrong / families <= most  # 0.05, and three standard errors
    assert family_wise is FamilyWise.HOLM or wrong / families > 0.8
    section = section_of(data)
    assert ("95 % sure of all" in section.sure) == (family_wise is FamilyWise.HOLM)
