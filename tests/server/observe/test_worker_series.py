"""The series of several workers on one page."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from acpc_server.observe import HttpEndpoint, Metrics, ServerHealth, WorkerSeries
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families


def busy() -> Metrics:
    metrics = Metrics()
    metrics.set_build(version="1", torch="2", device="cpu")
    metrics.compute.labels("encode", "job").observe(1)
    shift = metrics.shift('a "model"', "gaussian_noise:0.08")
    metrics.margin.labels(*shift, "top1").observe(-0.5)
    return metrics


@contextmanager
def served(name: str, token: str) -> Iterator[SimpleNamespace]:
    endpoint = HttpEndpoint(busy().registry, ServerHealth(), lambda: token)
    port = endpoint.start("127.0.0.1", 0)
    try:
        yield SimpleNamespace(name=name, ready=True, starts=1, metrics_port=port)
    finally:
        endpoint.stop()


def page(*workers: SimpleNamespace, token: str = "") -> str:
    registry = CollectorRegistry()
    registry.register(WorkerSeries(workers, lambda: token))
    return generate_latest(registry).decode()


def test_every_series_says_whose_it_is_and_is_as_it_was() -> None:
    with served("cuda:0", "t") as one, served("cuda:1", "t") as two:
        text = page(one, two, token="t")  # noqa: S106
    alone = generate_latest(busy().registry).decode()
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    wanted = {
        (sample.name, *sorted(sample.labels.items()))
        for family in text_string_to_metric_families(alone)
        for sample in family.samples
    }
    for name in ("cuda:0", "cuda:1"):
        found = {
            (sample.name, *sorted((k, v) for k, v in sample.labels.items() if k != "worker"))
            for family in families
            for sample in family.samples
            if sample.labels["worker"] == name and not sample.name.startswith("acpc_worker_")
        }
        assert found == wanted


def test_a_worker_that_does_not_answer_leaves_the_others() -> None:
    gone = SimpleNamespace(name="cuda:1", ready=False, starts=3, metrics_port=None)
    with served("cuda:0", "t") as one, served("cuda:2", "another") as denied:
        text = page(one, gone, denied, token="t")  # noqa: S106
    assert 'acpc_ready{worker="cuda:0"}' in text
    assert 'acpc_ready{worker="cuda:2"}' not in text
    assert 'acpc_worker_up{worker="cuda:1"} 0.0' in text
    assert 'acpc_worker_starts_total{worker="cuda:1"} 3.0' in text
