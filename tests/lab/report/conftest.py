"""Reports of drawn scores, made once."""

import pytest
from acpc_lab.report import ReportData, render
from acpc_lab.report.worst import missing
from report_samples import HOSTILE, preview, renamed, sweep


@pytest.fixture(scope="session")
def data() -> ReportData:
    """A sweep with pictures, success rates and a checkpoint whose name is markup."""
    plain = renamed(sweep(), "tworoom-s3072-a0.02", HOSTILE)
    pictures = {
        (operation, index): preview(seed=index, partner=index % 2 == 0)
        for operation, indices in missing(plain).items()
        for index in indices
    }
    return plain.with_(previews=pictures)


@pytest.fixture(scope="session")
def page(data: ReportData) -> str:
    return render(data)
