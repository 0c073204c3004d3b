"""Builds the documentation site from files as they lie in the repository (see mkdocs.yml).

Some pages lie outside ``docs/``, and links are written for the repository view. Here such pages are
added to the site, links are pointed at them, and a link to a file that is no page becomes its text.
The build fails when a page would load something from another host.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# Pages from outside docs/, by their place in the site.
OUTSIDE = {
    "start.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "examples/two_room.md": "examples/two_room/README.md",
    "examples/bring_your_own.md": "examples/bring_your_own/README.md",
}
SITE_PATHS = {source: page for page, source in OUTSIDE.items()}
LISTED = ("studies",)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\](?:\([^)]*\))?)*)\]\(([^)\s]+)\)")
CODE = re.compile(r"(```.*?```)", re.DOTALL)
LOADED = re.compile(r"""(?:\bsrc=|<link\b[^>]*\bhref=|@import\s|url\()["']?(?:https?:)?//""")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists every page of the folders whose pages are not named in mkdocs.yml."""
    for entry in config.nav or ():
        for title, pages in entry.items():
            if title.lower() in LISTED:
                folder = ROOT / "docs" / title.lower()
                names = sorted(path.name for path in folder.glob("*.md"))
                names.sort(key=lambda name: name != "README.md")
                pages.extend(f"{title.lower()}/{name}" for name in names)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that lie outside ``docs/``, and those of parameters and metrics."""
    for page, source in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    sys.path.append(str(ROOT / "docs" / "reference"))
    for name in ("parameter", "metric"):
        made = import_module(f"{name}_table").page()
        files.append(File.generated(config, f"reference/{name}s.md", content=made))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links of the repository at pages of the site, and adds the table of kinds."""
    kinds = import_module("parameter_table").kinds()
    parts = CODE.split(markdown.replace("<!-- kinds -->", kinds))
    return "".join(
        part if CODE.fullmatch(part) else _relinked(part, page.file.src_uri) for part in parts
    )


def on_post_build(config: MkDocsConfig) -> None:
    """Fails when a page or style of the site loads something from another host."""
    pages = [*Path(config.site_dir).rglob("*.html"), *Path(config.site_dir).rglob("*.css")]
    loading = [str(path) for path in pages if LOADED.search(path.read_text(errors="replace"))]
    if loading:
        raise PluginError(f"these load something from another host: {', '.join(loading)}")


def _relinked(text: str, page: str) -> str:
    folder = PurePosixPath(OUTSIDE.get(page, f"docs/{page}")).parent

    def link(found: re.Match[str]) -> str:
        picture, shown, target = found.groups()
        shown = LINK.sub(link, shown)
        parts = urlsplit(target)
        if parts.scheme or not parts.path:
            return f"{picture}[{shown}]({target})"
        source = os.path.normpath(folder / parts.path)
        page_there = SITE_PATHS.get(source) or SITE_PATHS.get(f"{source}/README.md")
        site = page_there or source.removeprefix("docs/")
        if site == source and (ROOT / source).exists():
            return shown
        anchor = f"#{parts.fragment}" if parts.fragment else ""
        return f"{picture}[{shown}]({os.path.relpath(site, PurePosixPath(page).parent)}{anchor})"

    return LINK.sub(link, text)
