"""Texts of files and of other processes, so that they steer neither a terminal nor a page."""

import re


def printable(text: str) -> str:
    r"""Return a text whose control characters are spelled out, line ends and tabs excepted.

    >>> printable("ring\x1b[2J"), printable("4 ranks \u00b7 \u00e9t\u00e9")
    ('ring\\x1b[2J', '4 ranks · été')
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
        for character in text
    )


def plain_markdown(text: str) -> str:
    r"""Return one line of Markdown that shows a text: no tag, link, code or end of a cell.

    >>> plain_markdown("ring<img>|[a](b)"), plain_markdown("recursive_doubling(radix=2)")
    ('ring\\<img>\\|\\[a](b)', 'recursive_doubling(radix=2)')
    """
    return re.sub(r"([\\`<|\[])", r"\\\1", text.replace("\n", " "))
