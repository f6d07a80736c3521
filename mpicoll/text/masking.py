r"""Texts without credentials: what names a secret, and where the secret ends.

A secret follows a name such as ``token`` or ``--api-key`` and a sign. It ends at the quote that
closes it or the text around it, in the query of a URL at ``&``, after ``=`` at a space, and after
``:`` or the name of a scheme, as ``Bearer``, at the end of the line. In doubt more is masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

MASK = "***"
_SECRET = "token|key|secret|pass|credential|jwt|auth|cookie"
_NAMES_SECRET = re.compile(_SECRET, re.IGNORECASE)
_SCHEME = re.compile(
    r"(?:bearer|basic|digest|negotiate|ntlm|token|api-?key|hoba|mutual|vapid|scram-\S+|aws4-\S+)\b",
    re.IGNORECASE,
)
"""The first words of the header ``Authorization``."""
_NAMED = re.compile(
    rf"(?<![\w.-])(?=[\w.-]*?(?:{_SECRET}))"
    r"(?:[\w.-]++\\*[\"']?\s*([=:])\s*"  # --api-key=..., "token": ..., ?auth=...
    r"|(?<!\S)-[\w-]++(?=\s)(?!\s*[=:])\s+(?!-))",  # --api-key ...
    re.IGNORECASE,
)
_URL_USER = re.compile(r"(\w://)(?:[^\s/:@]*:(?:(?!\w://)\S)*|[^\s/]*)@")
"""Of https://user:password@host, whose password may have any sign, and of https://token@host."""
_WITHOUT_NAMES = (
    re.compile(r"()\beyJ[\w-]{8,}\.[\w.-]+"),  # a JSON web token
    re.compile(r"\b(bearer\s+)[^\s\"']+", re.IGNORECASE),
)
_QUOTE = re.compile(r"\\*[\"']")
_WORD = re.compile(r"(?:\\.|[^\s\\])*\\?", re.DOTALL)
_NAME_AT_END = re.compile(rf"(?:{_SECRET})[\w.-]*[\"']?[=:]\s*$", re.IGNORECASE)
_SPACE = re.compile(r"\s*")
_LONGEST = 100
"""Characters of a name within a secret."""
_AFTER_QUOTED = frozenset(" \t\r\n,;&)]}")


def names_secret(name: str) -> bool:
    """Whether the name of an option or a variable says that its value is a secret."""
    return bool(_NAMES_SECRET.search(name))


@lru_cache(maxsize=256)  # each record of a run repeats its command
def masked(text: str) -> str:
    """Return a text without the credentials that it shows.

    >>> masked("https://me:word@host/x --api-key=abc ring,native")
    'https://***@host/x --api-key=*** ring,native'
    >>> masked("curl -H 'Authorization: Bearer abc' --password=ab,cd -v")
    "curl -H 'Authorization: ***' --password=*** -v"
    """
    text = _without_named(_URL_USER.sub(rf"\1{MASK}@", text))
    for pattern in _WITHOUT_NAMES:
        text = pattern.sub(rf"\1{MASK}", text)
    return text


def masked_arguments(arguments: Iterable[str]) -> list[str]:
    """Return a command line without the credentials that it shows.

    >>> masked_arguments(["-J", "x", "--auth-token", "abc", "tcp://me:word@host:1"])
    ['-J', 'x', '--auth-token', '***', 'tcp://***@host:1']
    """
    shown: list[str] = []
    is_secret = False
    for argument in arguments:
        is_scheme = is_secret and _SCHEME.fullmatch(argument) is not None
        shown.append(MASK if is_secret else _masked_argument(argument))
        is_secret = is_scheme or _announces_secret(argument)
    return shown


def _masked_argument(argument: str) -> str:
    """Return an argument of a command line without credentials: a secret takes the rest of it."""
    name, sign, value = argument.partition("=")
    if sign and value and names_secret(name) and re.fullmatch(r"[\w.-]+", name):
        return f"{name}={MASK}"
    return masked(argument)


def _announces_secret(argument: str) -> bool:
    """Whether the next argument is a secret."""
    is_option = argument.startswith("-") and "=" not in argument
    return names_secret(argument) and (is_option or argument.endswith((":", "=")))


def _without_named(text: str) -> str:
    """Return a text without the secrets that a name announces."""
    parts: list[str] = []
    position, open_quote = 0, ""
    while match := _NAMED.search(text, position):
        open_quote = _open_quote(text[position : match.end()], open_quote)
        begin, end = _secret(text, match, open_quote)
        while end < len(text) and _NAME_AT_END.search(text, max(begin, end - _LONGEST), end):
            end = _end_of(_WORD, text, _end_of(_SPACE, text, end))  # a name within the secret
        parts += text[position:begin], MASK if end > begin else ""
        position = end
    return "".join([*parts, text[position:]])


def _open_quote(text: str, quote: str) -> str:
    """Return the quote that is open at the end of a text, as a shell reads it; empty for none.

    Args:
        quote: the one that is open at its begin.
    """
    for sign in re.findall(r"\\.|[\"']", text, re.DOTALL):
        if sign == quote:
            quote = ""
        elif not quote and sign in "\"'":
            quote = sign
    return quote


def _secret(text: str, name: re.Match[str], open_quote: str) -> tuple[int, int]:
    """Return the begin and the end of the secret that a name announces.

    Args:
        open_quote: the quote that is open behind the name; empty for none.
    """
    start, sign = name.end(), name[1]
    quote = _QUOTE.match(text, start)
    if quote and quote[0] != open_quote:
        return _quoted(text, start, quote.end(), quote[0])
    if name.start() and text[name.start() - 1] in "?&":
        return start, _first_of(text, start, r"[&\s]")
    if open_quote:
        return _quoted(text, start, start, open_quote)
    if sign == ":" or _SCHEME.match(text, start):
        return start, _first_of(text, start, r"[\r\n]")
    return start, _end_of(_WORD, text, start)


def _quoted(text: str, start: int, inner: int, quote: str) -> tuple[int, int]:
    """Return the begin and the end of a secret up to a quote, and of what a shell joins to it.

    Args:
        inner: where the text within the quotes begins.
    """
    inside = re.escape(quote) if quote.startswith("\\") else rf"(?<!\\)(?:\\\\)*{quote}"
    closing = re.compile(inside).search(text, inner)
    if closing is None:
        return inner, len(text)
    if closing.end() == len(text) or text[closing.end()] in _AFTER_QUOTED:
        return inner, closing.end() - len(quote)
    return start, _end_of(_WORD, text, closing.end())  # 'ab'cd


def _first_of(text: str, start: int, pattern: str) -> int:
    """Return where a pattern matches first, or the end of the text."""
    match = re.compile(pattern).search(text, start)
    return match.start() if match else len(text)


def _end_of(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Return the end of a match of a pattern that takes an empty text, too."""
    match = pattern.match(text, start)
    return match.end() if match else start
