"""Which severities a search scores, and what it concludes from them."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from acpc.contract import ArgumentError, Score, parse, severities_up_to, strongest_of
from acpc_client import SeverityLimit, load_result, save_result
from acpc_client.errors import FailedPrecondition
from acpc_client.results import LimitSearch
from report_samples import BOUND, SE_LOG_IR, T_IR, judged
from report_samples import side as side_score

TOP, STEPS = 0.2, 20
# Relative IR at a severity; the intervals are BOUND standard errors wide on a logarithm.
Curve = Callable[[float], float]
GRADED = (
    "gaussian_noise", "blur", "resize", "brightness", "contrast", "color_jitter", "jpeg",
    "occlusion", "random_shift", "defocus_blur", "motion_blur", "shadow", "gamma",
)  # fmt: skip


def steep(crossing: float) -> Curve:
    """Relative IR that grows as a cube, and is the threshold's at one severity."""
    return lambda severity: T_IR * (severity / crossing) ** 3


def score_at(curve: Curve, severity: float) -> Score:
    reference = side_score("two-base", 1.0, 50.0)
    made = judged(side_score("two-a", curve(severity), 50.0), reference)
    relative = made.verdict.ir_relative
    assert relative is not None and relative == pytest.approx(curve(severity))
    return made


def searched(curve: Curve, evaluations: int = 6, steps: int = STEPS) -> tuple[SeverityLimit, int]:
    search = LimitSearch(severities_up_to(parse(f"gaussian_noise:{TOP}"), steps), evaluations)
    asked = []
    while (place := search.next()) is not None:
        asked.append(place)
        search.add(place, score_at(curve, search.shifts[place].severity), f"operations/{place}")
    assert len(set(asked)) == len(asked)
    return search.result(), len(asked)


@pytest.mark.parametrize("crossing", [0.013, 0.031, 0.055, 0.1, 0.143, 0.185])
def test_a_third_of_a_grid_brackets_the_limit(crossing: float) -> None:
    """Ends are those of the full grid within a step or two, for a third of its jobs at most."""
    found, jobs = searched(steep(crossing))
    whole, all_jobs = searched(steep(crossing), evaluations=STEPS)
    assert jobs <= STEPS // 3 < all_jobs or all_jobs <= STEPS // 3
    step = TOP / STEPS
    assert found.estimate == pytest.approx(crossing, abs=step)
    assert found.breaks is not None and whole.breaks is not None
    assert found.holds <= crossing <= found.breaks
    assert whole.holds - 2.01 * step <= found.holds <= whole.holds
    assert whole.breaks <= found.breaks <= whole.breaks + 2.01 * step
    # Where the intervals of the scores leave the threshold, by the definition of their width.
    surely = crossing * math.exp(-BOUND * SE_LOG_IR / 3)
    assert whole.holds <= surely + 1e-9 and whole.holds > surely - 1.01 * step
    assert found.broken_by == "IR" and found.monotone and found.unit == "sigma"
    assert [p.severity for p in found.points] == sorted(p.severity for p in found.points)


def test_what_holds_everywhere_or_nowhere_has_an_open_end() -> None:
    found, jobs = searched(steep(10.0))
    assert (found.estimate, found.holds, found.breaks) == (None, TOP, None)
    assert jobs <= 6 and found.passes
    assert "or more" in found.headline() or "the strongest" in found.headline()
    never, _ = searched(steep(0.001))
    assert (never.holds, never.breaks) == (0.0, TOP / STEPS)
    assert not never.passes and never.estimate == pytest.approx(TOP / STEPS / 2)


def test_a_curve_that_is_not_monotone_is_reported_and_its_first_failure_counts() -> None:
    def curve(severity: float) -> float:
        return 3 * T_IR if 0.035 < severity < 0.075 else T_IR / 3

    found, _ = searched(curve, evaluations=STEPS)
    everywhere = LimitSearch(severities_up_to(parse(f"gaussian_noise:{TOP}"), STEPS), STEPS)
    for place, shift in enumerate(everywhere.shifts):
        everywhere.add(place, score_at(curve, shift.severity))
    whole = everywhere.result()
    assert not whole.monotone and "not monotone" in whole.notes[0]
    assert 0.03 <= whole.holds <= 0.04 and whole.breaks is None
    assert found.breaks is None or found.monotone


def test_more_evaluations_never_widen_the_interval() -> None:
    curve = steep(0.11)
    widths = []
    for evaluations in range(1, 13):
        found, _ = searched(curve, evaluations)
        widths.append((found.breaks or math.inf) - found.holds)
    assert widths == sorted(widths, reverse=True)
    few, _ = searched(curve, 2)
    assert "2 severities were scored, as many as were asked for" in few.notes[0]


def test_jobs_that_stopped_at_different_anchors_belong_together() -> None:
    """Until decided, a clear severity takes fewer anchors than a narrow one."""
    search = LimitSearch(severities_up_to(parse("gaussian_noise:0.1"), 2), 2)
    first = score_at(steep(0.05), 0.05)
    search.add(0, first)
    fewer = replace(first.checkpoint, anchors=first.checkpoint.anchors // 2)
    receipt = replace(first.receipt, anchors_digest="0" * 64)
    search.add(1, replace(score_at(steep(0.05), 0.1), checkpoint=fewer, receipt=receipt))
    assert len(search.result().points) == 2


@pytest.mark.parametrize("power", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("crossing", [0.033, 0.058, 0.112])
def test_the_ends_are_outside_those_of_an_endless_grid(power: float, crossing: float) -> None:
    """Between neighbours a curve that bends either way crosses where the ends allow."""

    def curve(severity: float) -> float:
        return T_IR * (severity / crossing) ** power

    found, _ = searched(curve, evaluations=STEPS)
    reach = math.exp(BOUND * SE_LOG_IR / power)
    assert found.breaks is not None
    for inner, outer in ((crossing / reach, found.holds), (found.breaks, crossing * reach)):
        assert -1e-9 <= inner - outer <= TOP / STEPS


def test_scores_that_do_not_belong_together_are_refused() -> None:
    search = LimitSearch(severities_up_to(parse("gaussian_noise:0.1"), 4), 4)
    first = score_at(steep(0.05), 0.05)
    search.add(1, first)
    for name in ("checkpoint_digest", "reference_digest", "anchors_digest"):
        other = replace(first, receipt=replace(first.receipt, **{name: "0" * 64}))
        with pytest.raises(FailedPrecondition, match=f"the {name.partition('_')[0]} changed"):
            search.add(2, other)
    with pytest.raises(FailedPrecondition, match="no reference or no evidence"):
        search.add(2, replace(first, evidence=None))
    with pytest.raises(ArgumentError, match="evaluations: found 0, wanted at least 1"):
        LimitSearch(search.shifts, 0)


def test_a_limit_is_a_table_a_file_and_a_picture(tmp_path: object) -> None:
    found, jobs = searched(steep(0.1))
    assert len(found.table()["severity"]) == jobs
    assert found.headline() == (
        f"two-a holds up to sigma {found.estimate:.3g} "
        f"[{found.holds:.3g}, {found.breaks:.3g}]; breaks by IR"
    )
    for suffix in ("json", "npz"):
        path = f"{tmp_path}/limit.{suffix}"
        save_result(found, path)
        assert load_result(path).answer == found
    assert found.plot().png().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", GRADED)
def test_steps_of_every_kind_grow_to_the_strongest(kind: str) -> None:
    strongest = strongest_of(kind)
    usual = parse(f"{kind}:{type(strongest).example}")
    assert strongest.severity >= usual.severity
    made = severities_up_to(strongest, STEPS)
    severities = [shift.severity for shift in made]
    assert made[-1] == strongest and severities[0] > 0
    assert severities == sorted(set(severities)) and len(made) <= STEPS


@pytest.mark.parametrize(
    ("shift", "steps", "problem"),
    [
        ("identity", 3, "has no severity"),
        ("given_views:a:0.5", 3, "has no severity"),
        ("gaussian_noise:0", 3, "changes nothing"),
        ("gaussian_noise:0.1", 0, "steps: found 0, wanted 1 to 256"),
    ],
)
def test_steps_that_do_not_exist_are_refused(shift: str, steps: int, problem: str) -> None:
    with pytest.raises(ArgumentError, match=problem):
        severities_up_to(parse(shift), steps)
