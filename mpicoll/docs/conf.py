"""The configuration of Sphinx. ``.ci/docs`` builds the pages with it."""

from __future__ import annotations

from typing import Any

project = "mpicoll"
author = copyright = "The mpicoll authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["README.md", "html"]
html_theme = "furo"
html_title = "mpicoll"
html_static_path = ["static"]
html_copy_source = html_show_sphinx = False
html_permalinks_icon = "#"
smartquotes = False
html_math_renderer = "mathml"
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 80
napoleon_numpy_docstring = napoleon_preprocess_types = False


def setup(app: Any) -> dict[str, bool]:
    """Connect the generated parts, the docstrings of attributes, and formulas as MathML."""
    app.connect("source-read", _fill)
    # Napoleon reads the first words of an attribute's docstring as its type.
    app.connect("autodoc-process-docstring", _disable_napoleon, priority=400)
    app.connect("autodoc-process-docstring", _enable_napoleon, priority=600)
    app.connect("autodoc-process-docstring", _add_picture, priority=700)
    app.connect("doctree-read", _let_figures_scroll)
    app.add_css_file("pages.css")
    app.add_html_math_renderer("mathml", (_write_inline, None), (_write_block, None))
    return {"parallel_read_safe": True}


def _fill(app: Any, page: str, source: list[str]) -> None:
    """Put the generated Markdown in the place of its comment."""
    from mpicoll.docs.generated import fill

    source[0] = fill(source[0])


def _let_figures_scroll(_app: Any, doctree: Any) -> None:
    """Put each figure into a box of its own, which scrolls on a phone."""
    from docutils.nodes import container, image

    for figure in [*doctree.findall(image)]:
        box = container(classes=["scrolling"])
        figure.replace_self(box)
        box += figure


def _add_picture(
    _app: Any, kind: str, name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    """Put the picture of a collective before the text of its method."""
    from mpicoll.docs.pictures import picture
    from mpicoll.notation.contract import COLLECTIVES

    owner, _, method = name.rpartition(".")
    if kind == "method" and owner == "mpicoll.Collectives" and method in COLLECTIVES:
        lines[:0] = [".. raw:: html", "", f"   {picture(method)}", ""]


def _disable_napoleon(app: Any, kind: str, *arguments: Any) -> None:
    app.config.napoleon_google_docstring = kind not in ("attribute", "property")


def _enable_napoleon(app: Any, *arguments: Any) -> None:
    app.config.napoleon_google_docstring = True


def _write_inline(writer: Any, node: Any) -> None:
    _write_formula(writer, node, is_block=False)


def _write_block(writer: Any, node: Any) -> None:
    _write_formula(writer, node, is_block=True)


def _write_formula(writer: Any, node: Any, *, is_block: bool) -> None:
    """Write a formula that browsers draw without a script or a network."""
    from docutils.nodes import SkipNode
    from docutils.utils.math.latex2mathml import tex2mathml

    writer.body.append(tex2mathml(node.astext(), as_block=is_block))
    raise SkipNode
