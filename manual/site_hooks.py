"""What mkdocs asks while it makes the site: pages that are not in docs/, links that lead out of it, anchors.

Pages of the reference are made anew in each build, and nowhere kept. Those of the tree (README.md and its like) are the same as on the forge.
"""

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # mkdocs knows of this file's folder alone

from manual import casts, links, reference  # noqa: E402

STATIC = ("iframe-worker.js", "site.css", *casts.PLAYER)
"""iframe-worker starts the search's worker where the page is a file. The plugin would have each reader get it from the network."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors as forges make them."""
    config.mdx_configs["toc"]["slugify"] = links.anchor
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """What is not in docs/ comes to what is."""
    for path, place in links.OUTSIDE.items():
        files.append(File.generated(config, place, content=(ROOT / path).read_text()))
    for place, text in reference.pages():
        files.append(File.generated(config, place, content=text))
    for name in STATIC:
        files.append(File.generated(config, f"assets/{name}", abs_src_path=str(ROOT / "manual/static" / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that leave docs/ lead somewhere, and recordings are played."""
    place = page.file.src_uri
    return casts.played(links.for_site(markdown, place), place, lambda path: (ROOT / "docs" / path).read_text())
