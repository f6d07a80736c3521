"""Build the extension, or say in one sentence what to install; setuptools runs this."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError, PlatformError

_SENTENCE = (
    "mpicoll needs a C compiler and the headers of Python to build its extension, but {}: "
    "install them (Debian, Ubuntu: apt install gcc libc6-dev python3-dev; Fedora, RHEL: "
    "dnf install gcc python3-devel), or name another compiler in CC"
)


class BuildExtension(build_ext):  # type: ignore[misc]  # setuptools has no types
    """The command that compiles the extension."""

    def build_extensions(self) -> None:
        """Compile all extensions.

        Raises:
            PlatformError: there is no compiler, or Python's headers are missing.
            CompileError: the compiler fails.
        """
        reason = _missing(self.compiler.compiler_so[0])
        if reason:
            raise PlatformError(_SENTENCE.format(reason))
        try:
            super().build_extensions()
        except (CompileError, LinkError) as error:
            raise CompileError(
                _SENTENCE.format("the compiler failed, as its messages above say")
            ) from error


def _missing(compiler: str) -> str:
    """Return which part of the tools is missing; empty if none is.

    >>> _missing("no-such-compiler")
    "there is no 'no-such-compiler'"
    """
    if shutil.which(compiler) is None:
        return f"there is no {compiler!r}"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return "" if header.exists() else f"there is no {header}"
