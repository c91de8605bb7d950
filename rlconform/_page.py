"""Renders HTML pages: one file each, no network, one style, every inserted string escaped.

A template extends ``page_base.html.j2``, which has the style and a content security policy: a page
loads nothing, and runs only the script whose digest the policy names.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

#: Folder below ``rlconform`` of the base template and of the script that filters rows.
TEMPLATES = "_templates"


def render_template(
    package: str,
    template: str,
    filters: Mapping[str, Callable[..., Any]] | None = None,
    script: str = "",
    **values: Any,
) -> str:
    """Return a page made of the package's template; ``script`` is a file in ``_templates``."""
    environment = _environment(package)
    environment.filters |= dict(filters or {})
    source = (
        (resources.files("rlconform") / TEMPLATES / script).read_text("utf-8") if script else ""
    )
    return environment.get_template(template).render(
        script=Markup(source), script_hash=_hash(source), **values
    )


@cache
def _environment(package: str) -> Environment:
    """Return an environment that compiles each template once."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("rlconform", TEMPLATES)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["safe_link"] = safe_link
    environment.filters["breakable"] = breakable
    return environment


def safe_link(address: str) -> str:
    """Return the address if a browser may open it, else "": ``javascript:`` is no web address."""
    return address if address.startswith(("https://", "http://")) else ""


def breakable(name: str) -> Markup:
    """Return the name, which a narrow page breaks behind a ``/``, ``_`` or ``:`` if it has to."""
    parts = re.split(r"(?<=[/_:])(?=.)", name)
    return Markup("<wbr>").join(map(escape, parts))


def _hash(script: str) -> str:
    """Return the script's digest as a content security policy names it."""
    return f"sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
