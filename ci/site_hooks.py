"""Hooks of ``mkdocs.yml``: links of a page that lead out of ``docs/``.

Pages link to files of the repository, which a checkout and a forge show and the site does not have.
With ``repo_url`` such a link leads there; without it the page keeps its text.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

#: A Markdown link to a path: its text, the path, and the fragment.
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")


def outside(page: str, link: str) -> str | None:
    """Return the path from the root of the repository if the link leaves ``docs/``, else None."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if path == "docs" or path.startswith("docs/") else path


def rewrite(markdown: str, page: str, repo_url: str) -> str:
    """Return the page's text, with links out of ``docs/`` led to the repository or taken off."""

    def replace(found: re.Match[str]) -> str:
        text, link, fragment = found[1], found[2], found[3] or ""
        path = outside(page, link)
        if path is None:
            return found[0]
        return f"[{text}]({repo_url.rstrip('/')}/blob/main/{path}{fragment})" if repo_url else text

    return LINK.sub(replace, markdown)


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Called by MkDocs with the text of each page."""
    return rewrite(markdown, page.file.src_uri, config.repo_url or "")
