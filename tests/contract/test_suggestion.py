"""Names that somebody may have meant."""

import pytest
from acpc.contract import did_you_mean, nearest

KNOWN = ["lewm", "lewm-base", "models/pldm", "tworoom.h5", "gaussian_noise", "Upper"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("lwem", ["lewm"]),
        ("LEWM", ["lewm", "lewm-base"]),
        ("pldm", ["models/pldm"]),
        ("tworooms.h5", ["tworoom.h5"]),
        ("tworoom", ["tworoom.h5"]),
        ("noise", ["gaussian_noise"]),
        ("upper", ["Upper"]),
        ("", []),
        ("something else", []),
    ],
)
def test_the_nearest_names(name: str, near: list[str]) -> None:
    assert nearest(name, KNOWN) == near


def test_it_is_a_question_or_what_else_to_say() -> None:
    assert did_you_mean("lwem", KNOWN, "no") == "did you mean 'lewm'?"
    assert did_you_mean("LEWM", KNOWN) == "did you mean 'lewm' or 'lewm-base'?"
    assert did_you_mean("x", KNOWN, "no") == "no"


def test_a_name_of_a_mebibyte_and_a_million_names_cost_little() -> None:
    looked: list[int] = []

    def names() -> object:
        for number in range(1_000_000):
            looked.append(number)
            yield f"{number:0300}"

    assert nearest("0" * 2**20, names(), 1) == [f"{0:0300}"]
    assert len(looked) == 1000
