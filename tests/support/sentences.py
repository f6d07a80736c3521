"""Count the long sentences of Markdown and of public docstrings.

    python tests/support/sentences.py [--long] [PATHS]

prints the share of sentences over 25 words for each path, and with ``--long`` the sentences.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MOST_WORDS = 25
ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^(`{3,}|:{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"(`+)[^`].*?\1")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.|: )\s+|^#+ |^\s+\w[\w, ]*(?: \([^)]*\))?: ", re.MULTILINE)
_END = re.compile(r"(?<=[.!?])[\"”)*]*\s+(?=[A-Z`\"“(*\[])|\|")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of Markdown; an item of a list and a cell of a table end one."""
    text = _COMMENT.sub("", _FENCE.sub("\n\n", text))
    for paragraph in re.split(r"\n\s*\n", _ITEM.sub("\n\n", _CODE.sub("Code", text))):
        for sentence in _END.split(" ".join(paragraph.split())):
            if re.search(r"[a-z]", sentence):
                yield sentence


def docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings of a module, and of its public classes and functions."""
    nodes: list[ast.AST] = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield re.sub(r"^\s*(>>>|\.\.\. ).*", "", ast.get_docstring(node) or "", flags=re.M)
            nodes += [
                child for child in node.body if not getattr(child, "name", "").startswith("_")
            ]


def sentences_of(path: Path) -> list[str]:
    """Return the sentences of a file, or of all files of a folder: Markdown and docstrings."""
    if path.is_dir():
        files = sorted({*path.rglob("*.md"), *path.rglob("*.py")})
        return [sentence for file in files for sentence in sentences_of(file)]
    text = path.read_text()
    texts = docstrings(text) if path.suffix == ".py" else [text]
    return [sentence for part in texts for sentence in sentences(part)]


def is_long(sentence: str, most_words: int = MOST_WORDS) -> bool:
    """Whether a sentence has more words than the most that a page may have."""
    return len(re.findall(r"\S*\w\S*", sentence)) > most_words


def long_share(path: Path) -> float:
    """Return the share of long sentences, in per cent."""
    texts = sentences_of(path)
    return 100 * sum(map(is_long, texts)) / max(1, len(texts))


def main(arguments: list[str]) -> None:
    """Print the share of each path, and the long sentences."""
    paths = [Path(path) for path in arguments if path != "--long"]
    for path in paths or [ROOT / "README.md", ROOT / "mpicoll", ROOT / "torchcoll"]:
        print(f"{long_share(path):5.1f} % of {len(sentences_of(path))} sentences: {path}")
        if "--long" in arguments:
            print(*(f"    {sentence}" for sentence in sentences_of(path) if is_long(sentence)),
                  sep="\n")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
