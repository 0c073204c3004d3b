"""Which factor of variation breaks which checkpoint: light, colours, sizes, texture.

    python examples/factor_demo.py           (or: make factor-demo)

Renders the histories of two-room anchors under seven factors at three levels, uploads them as
groups of views, scores three checkpoints on every group, one of them trained with other colours,
asks whose plans are certified, and writes the report to build/factor-demo/report.html.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import yaml
from acpc_client import AcpcClient
from acpc_lab.factors import LEVELS, certified_shares, certified_study, write_certified
from PIL import Image, ImageDraw, ImageFont
from server_process import HERE, WORLD, acpc, running_server

sys.path.insert(0, str(WORLD))

from factor_set import draw_anchors, factor_views
from factors import FACTORS, render_factor

REFERENCE = "two-room-base"
CHECKPOINTS = (REFERENCE, "two-room-augmented", "two-room-coloured")
CERTIFIED_ANCHORS = 40
# Exit code of a sweep in which a cell fails the screen: expected.
SCREEN_FAILED = 3


def sweep_file(anchor_set: str, draws: int) -> str:
    """The sweep: every checkpoint under every group of views."""
    return yaml.safe_dump(
        {
            "name": "two-room-factors",
            "description": "Which factor of variation breaks which checkpoint? Trained on frames "
            "as they are (base), with pixel noise (augmented), and with other colours (coloured).",
            "checkpoints": [{"name": name, "reference": REFERENCE} for name in CHECKPOINTS],
            "anchors": {"set": anchor_set},
            "shifts": [{"given_views": "*"}],
            "protocol": {"draws": draws},
            "concurrency": 2,
        },
        sort_keys=False,
    )


def worlds(path: Path) -> None:
    """Draws one state under every factor: a column each, levels downwards from 0 to 1."""
    side, line, left = 96, 14, 60
    sheet = Image.new("RGB", (left + len(FACTORS) * (side + 4), line + 4 * (side + 4)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    levels = (0.0, *LEVELS)
    for row, level in enumerate(levels):
        place = (0, line + row * (side + 4) + side // 2 - 6)
        pen.text(place, f"level {level:.2g}", fill="black", font=font)
    for column, factor in enumerate(FACTORS):
        x = left + column * (side + 4)
        pen.text((x, 0), factor, fill="black", font=font)
        for row, level in enumerate(levels):
            frame = render_factor(np.array([0.25, 0.4]), factor, level, np.random.default_rng(5))
            picture = Image.fromarray(frame).resize((side, side), Image.Resampling.NEAREST)
            sheet.paste(picture, (x, line + row * (side + 4)))
    sheet.save(path, optimize=True)


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "factor-demo")
    parser.add_argument("--anchors", type=int, default=100, help="default: %(default)s")
    parser.add_argument("--factors", nargs="+", choices=FACTORS, default=list(FACTORS))
    parser.add_argument("--levels", type=float, nargs="+", default=LEVELS, help="in [0, 1]")
    parser.add_argument("--draws", type=int, default=3, help="views a group, default: %(default)s")
    args = parser.parse_args()
    out: Path = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)

    worlds(out / "worlds.png")
    anchors, positions = draw_anchors(args.anchors)
    views = factor_views(anchors, positions, args.factors, levels=args.levels, draws=args.draws)
    sweep, certified, report = out / "factors.yaml", out / "certified.csv", out / "report.html"
    with running_server(WORLD / "checkpoints", WORLD, out / "state") as address:
        with AcpcClient(address) as client:
            stored = client.anchors.upload(anchors, views=views, description="two-room factors")
            print(f"{len(views)} groups of views of {len(anchors)} anchors: set {stored.digest}")
            sweep.write_text(sweep_file(stored.digest, args.draws), encoding="utf-8")
            done = acpc(address, "sweep", "run", str(sweep), "--output", str(out / "cells.csv"))
            if done not in (0, SCREEN_FAILED):
                sys.exit(done)
            some = {name: found[:CERTIFIED_ANCHORS] for name, found in views.items()}
            few = client.anchors.upload(anchors.part(0, CERTIFIED_ANCHORS), views=some)
            study = certified_study(few, candidates=32)
            shares = [
                row for name in CHECKPOINTS for row in certified_shares(client, name, few, study)
            ]
        write_certified(certified, shares)
        figures = out / "figures"
        given = ("--certified", str(certified), "--output", str(report), "--figures", str(figures))
        reported = acpc(address, "report", str(sweep), *given)
    if reported:
        sys.exit(reported)
    print(f"\nOpen {report} in a browser; figures are in {figures}, rows in {out / 'cells.csv'}")


if __name__ == "__main__":
    main()
