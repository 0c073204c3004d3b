"""The page in a real browser: offline, in light and dark, on a phone and on a desk.

Needs Chromium (``apt-get install chromium``).
"""

import itertools
import re
import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from programs import missing

pytestmark = pytest.mark.slow

NAMES = ("chromium", "chromium-browser", "google-chrome")
SIZES = {"phone": (420, 780), "desk": (1400, 900)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    binary = next(filter(None, map(shutil.which, NAMES)), None)
    if binary is None:
        missing("chromium", "chromium")
    with sync_playwright() as playwright:
        # A container's root has no namespaces to build a sandbox from.
        chromium = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def location(page: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("browser") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


class Visit:
    """The page as opened in one context, and everything that happened."""

    def __init__(self, browser: Browser, location: str, size: str, scheme: str) -> None:
        self.location, self.width, self.scheme = location, SIZES[size][0], scheme
        width, height = SIZES[size]
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
        )
        self.tab: Page = self.context.new_page()
        self.requests: list[str] = []
        self.said: list[str] = []
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.tab.goto(location)


@pytest.fixture(scope="module", params=itertools.product(SIZES, ("light", "dark")), ids="-".join)
def visit(request: pytest.FixtureRequest, browser: Browser, location: str) -> Iterator[Visit]:
    opened = Visit(browser, location, *request.param)
    yield opened
    opened.context.close()


def test_it_asks_for_nothing_and_fits_into_the_window(visit: Visit) -> None:
    """No request but the file itself, no error, no dialog from a hostile name."""
    outside = [
        url for url in visit.requests if url != visit.location and not url.startswith("data:")
    ]
    assert outside == [] == visit.said
    widths = visit.tab.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert widths[0] <= widths[1]


def test_figures_and_pictures_are_there(visit: Visit) -> None:
    boxes = visit.tab.evaluate(
        "[...document.images].map(e => e.getBoundingClientRect())"
        ".map(b => [b.left, b.right, b.width, b.height])"
    )
    assert len(boxes) > 10 and all(left >= 0 < height for left, _, _, height in boxes)
    assert all(right <= visit.width for _, right, _, _ in boxes)
    assert sum(width > 150 and height > 120 for _, _, width, height in boxes) >= 10
    assert visit.tab.evaluate("[...document.images].every(e => e.naturalWidth > 0)")


def test_a_wide_table_scrolls_and_its_names_stay(visit: Visit) -> None:
    visit.tab.evaluate("document.getElementById('all').parentElement.scrollLeft = 200")
    box = visit.tab.locator("#all tbody th").first.bounding_box()
    assert box is not None and box["x"] >= 0


COLOURS = """
(() => {
  const seen = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || node.closest('script,title')) continue;
    if (!node.checkVisibility()) continue;
    let under = node;
    const clear = 'rgba(0, 0, 0, 0)';
    while (getComputedStyle(under).backgroundColor === clear) under = under.parentElement;
    seen.push(getComputedStyle(node).color + '|' + getComputedStyle(under).backgroundColor);
  }
  return [...new Set(seen)];
})()
"""


def luminance(colour: str) -> float:
    values = [int(found) / 255 for found in re.findall(r"\d+", colour)[:3]]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_all_text_can_be_read(visit: Visit) -> None:
    """Contrast of at least 4.5:1 as the browser computes the colours, on the theme's ground."""
    pairs = visit.tab.evaluate(COLOURS)
    assert len(pairs) >= 5
    for pair in pairs:
        light, dark = sorted(map(luminance, pair.split("|")), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, pair
    ground = visit.tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(ground) < 0.1) == (visit.scheme == "dark")


def shown(tab: Page, column: int) -> list[str]:
    found: list[str] = tab.evaluate(
        "column => [...document.querySelectorAll('#all tbody tr')]"
        ".map(r => r.cells[column].dataset.order)",
        column,
    )
    return found


def test_the_table_sorts_both_ways(browser: Browser, location: str) -> None:
    visit = Visit(browser, location, "desk", "light")
    tab = visit.tab
    heads = tab.locator("#all thead th").all_inner_texts()
    column = next(index for index, text in enumerate(heads) if text.startswith("relative IR"))
    button = tab.locator("#all thead th button").nth(column)
    before = list(map(float, shown(tab, column)))
    assert before != sorted(before)
    button.click()
    assert list(map(float, shown(tab, column))) == sorted(before)
    assert tab.locator("#all thead th").nth(column).get_attribute("aria-sort") == "ascending"
    button.focus()
    tab.keyboard.press("Enter")
    assert list(map(float, shown(tab, column))) == sorted(before, reverse=True)
    assert visit.said == []
    visit.context.close()


def test_without_scripts_the_page_is_whole(browser: Browser, location: str, page: str) -> None:
    context = browser.new_context(java_script_enabled=False, offline=True)
    tab = context.new_page()
    tab.goto(location)
    assert tab.locator("#all tbody tr").count() == page.count('<th scope="row" data-order=')
    assert tab.locator("#all tbody tr").first.is_visible()
    assert tab.locator("button").count() == 0
    context.close()


def test_figures_have_the_ground_of_the_page(visit: Visit) -> None:
    shot = Image.open(BytesIO(visit.tab.locator(".panels img").first.screenshot())).convert("L")
    assert max(shot.getpixel((x, 2)) for x in range(20)) < 40 or visit.scheme == "light"
    assert min(shot.getpixel((x, 2)) for x in range(20)) > 240 or visit.scheme == "dark"
    darkest, lightest = shot.getextrema()
    assert lightest - darkest > 150  # its ink


def test_it_prints_light_and_unfolded(browser: Browser, location: str) -> None:
    visit = Visit(browser, location, "desk", "dark")
    visit.tab.emulate_media(media="print", color_scheme="dark")
    ground = visit.tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert luminance(ground) > 0.9
    clipped = visit.tab.evaluate(
        "[...document.querySelectorAll('.tall')].filter(e => e.scrollHeight > e.clientHeight + 1)"
        ".length"
    )
    assert clipped == 0
    visit.tab.set_viewport_size({"width": 794, "height": 1123})  # A4
    assert visit.tab.evaluate("document.documentElement.scrollWidth") <= 794
    assert visit.tab.pdf()[:5] == b"%PDF-"
    visit.context.close()
