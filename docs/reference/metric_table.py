"""The page of metrics: every series that the server exports, in its own words.

mkdocs builds the page (``docs/site_hook.py``); ``python docs/reference/metric_table.py`` prints it.
"""

from __future__ import annotations

from acpc_server.observe import Metrics

HEAD = """# Metrics

What `/metrics` of a server exports ([health, access, values of labels](../operate/watch.md)), and
`process_*` and `python_*` of prometheus_client. Times are seconds; counters start at 0 with the
process; a labelled series appears with its first event.

| series | type | labels | meaning |
|---|---|---|---|
| `acpc_build_info` | info | `version`, `torch`, `device` | What runs, as in receipts. |
"""


def page() -> str:
    """The page, in Markdown."""
    lines = []
    for series in sorted(Metrics().registry.listed):
        labels = ", ".join(f"`{label}`" for label in series.labels)
        lines.append(f"| `{series.name}` | {series.kind} | {labels} | {series.text} |")
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page())
