# SPDX-License-Identifier: Apache-2.0
"""Builds SVG as text, for the scripts in this folder."""
from xml.sax.saxutils import escape, quoteattr


def element(name, *inside, text=None, **attributes):
    """An element; `_` in the names of attributes stands for `-`, and a last `_` is dropped (class_). Numbers are
    rounded to a hundredth."""
    words = [name]
    for key, value in attributes.items():
        if isinstance(value, float):
            value = f"{value:.2f}".rstrip("0").rstrip(".")
        words.append(f"{key.rstrip('_').replace('_', '-')}={quoteattr(str(value))}")
    content = "".join(inside) + (escape(text) if text is not None else "")
    return f"<{' '.join(words)}>{content}</{name}>\n" if content else f"<{' '.join(words)}/>\n"


def document(width, height, title, style, *inside):
    """A whole picture; `title` is what a reader hears who does not see it."""
    return element("svg", element("title", text=title), f"<style>{style}</style>\n", *inside,
                   xmlns="http://www.w3.org/2000/svg", width=width, height=height,
                   viewBox=f"0 0 {width} {height}", role="img")
