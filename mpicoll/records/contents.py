"""The content of a file of records as text, decompressed; other encodings are named and refused."""

from __future__ import annotations

import zlib
from gzip import BadGzipFile, GzipFile
from io import BytesIO
from pathlib import Path

from mpicoll.errors import ArgumentError
from mpicoll.text.files import MOST_BYTES, content_of

_GZIP = b"\x1f\x8b"
_UTF_8_MARK = b"\xef\xbb\xbf"
_FOREIGN = {
    b"\xff\xfe\x00\x00": "UTF-32 text", b"\x00\x00\xfe\xff": "UTF-32 text",
    b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text",
    b"{\x00": "UTF-16 text without a mark", b"\x00{": "UTF-16 text without a mark",
    b"(\xb5/\xfd": "compressed by zstd", b"BZh": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz", b"PK\x03\x04": "a zip archive",
    b"PAR1": "a Parquet table", b"ARROW1": "an Arrow table",
}  # fmt: skip
"""The first bytes of files that are no lines of UTF-8, with a name; longer marks first."""


def records_text(path: Path) -> bytes:
    """Return the lines of a file of records, gzip or not, as UTF-8.

    Raises:
        ArgumentError: the file cannot be read, or has another encoding.
    """
    content = content_of(path)
    return plain_text(_decompressed(content, path) if content[:2] == _GZIP else content, path)


def plain_text(content: bytes, path: Path) -> bytes:
    """Return the content without the mark of UTF-8.

    Raises:
        ArgumentError: it is compressed, or has another encoding.
    """
    if content[:2] == _GZIP:
        raise ArgumentError(f"{path} is compressed by gzip: decompress it first (gunzip)")
    for mark, name in _FOREIGN.items():
        if content.startswith(mark):
            raise ArgumentError(f"{path} is {name}: give lines of JSON in UTF-8, gzip or not")
    return content.removeprefix(_UTF_8_MARK)


def _decompressed(content: bytes, path: Path) -> bytes:
    try:
        text = GzipFile(fileobj=BytesIO(content)).read(MOST_BYTES + 1)
    except (BadGzipFile, EOFError, zlib.error) as error:
        raise ArgumentError(f"cannot read {path}: its gzip data is damaged: {error}") from None
    if len(text) > MOST_BYTES:
        raise ArgumentError(f"cannot read {path}: it has more than {MOST_BYTES >> 30} GiB")
    return text
