"""A matplotlib figure as an SVG element that can stand in an HTML page beside others."""

from __future__ import annotations

import re
import warnings
from io import StringIO
from xml.etree import ElementTree

from matplotlib.figure import Figure

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_PIXELS_PER_INCH = 112  # a font of 10 points is as large as a table's
_LOCAL = re.compile(r"#(?=[\w-])")


def inline_svg(figure: Figure, title: str) -> str:
    """``figure`` as one ``<svg>``, called ``title`` for who can't see it.

    Its ids are made the page's own by a prefix, for every figure calls its parts alike.
    """
    drawn = StringIO()
    with warnings.catch_warnings():
        # The browser draws the text: letters that matplotlib's font lacks are no loss.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(drawn.getvalue())
    prefix = re.sub(r"\W+", "-", title.lower()) + "-"
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{{{_SVG}}}metadata":
                parent.remove(child)
        _prefix_ids(parent, prefix)
    root.set("role", "img")
    root.set("aria-label", title)
    for size in ("width", "height"):  # the viewBox tells the shape; it shrinks with the page
        root.attrib.pop(size, None)
    root.set("style", f"max-width: {figure.get_figwidth() * _PIXELS_PER_INCH:.0f}px")
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    return ElementTree.tostring(root, encoding="unicode")


def _prefix_ids(element: ElementTree.Element, prefix: str) -> None:
    for name, value in element.attrib.items():
        if name == "id":
            element.set(name, prefix + value)
        elif name == f"{{{_XLINK}}}href" or "url(#" in value:
            element.set(name, _LOCAL.sub(f"#{prefix}", value))
