"""Write deploy/prometheus/rules.yml as a PrometheusRule, for clusters with the operator.

python deploy/prometheus_rule.py            (or: make monitoring-rules)
"""

from __future__ import annotations

from pathlib import Path

import yaml

DEPLOY = Path(__file__).parent
TARGET = DEPLOY / "kubernetes" / "monitoring" / "rules.yaml"
HEADER = "# Written by `make monitoring-rules` from deploy/prometheus/rules.yml: change it there.\n"


def manifest() -> str:
    """The rules as Prometheus reads them, in the operator's resource."""
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "acpc-server"},
        "spec": yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text()),
    }
    return HEADER + yaml.safe_dump(rule, sort_keys=False, width=10_000)


if __name__ == "__main__":
    TARGET.write_text(manifest())
