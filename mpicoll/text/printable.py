"""Texts of files and of other processes, so that they cannot steer a terminal."""


def printable(text: str) -> str:
    r"""Return a text whose control characters are spelled out, line ends and tabs excepted.

    >>> printable("ring\x1b[2J"), printable("4 ranks \u00b7 \u00e9t\u00e9")
    ('ring\\x1b[2J', '4 ranks · été')
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text
    )
