"""The configuration file: defaults of mpicoll's environment variables, under the same names.

Importing mpicoll reads the file, so all modules find its values in the environment. A variable that
the environment already has stays as it is.
"""

from __future__ import annotations

import os

VARIABLE = "MPICOLL_CONFIG"
"""The path of the file; an empty path reads no file."""
_values: dict[str, str] = {}
"""The values that the environment has from the file."""


def path() -> str:
    """Return where the file is, or would be; by default where platformdirs has it."""
    # platformdirs itself would take most of the time of `import mpicoll`.
    if (named := os.environ.get(VARIABLE)) is not None:
        return named
    folder = os.environ.get("XDG_CONFIG_HOME", "").strip() or os.path.expanduser("~/.config")
    return os.path.join(folder, "mpicoll", "mpicoll.toml")


def load() -> None:
    """Read the file into the environment, if there is one.

    Raises:
        BadFile: the file that `MPICOLL_CONFIG` names is missing, or a file is wrong.
    """
    file = path()
    if file in ("", os.devnull) or (not os.path.exists(file) and VARIABLE not in os.environ):
        return
    from mpicoll.errors import BadFile
    from mpicoll.machine.variables import configured_values
    from mpicoll.text.printable import printable

    try:
        values = configured_values(file)
    except BadFile as error:  # which Python prints, in a program
        raise BadFile(printable(str(error))) from None
    for name, value in values.items():
        if name not in os.environ:
            os.environ[name] = _values[name] = value


def describe() -> str:
    """Return the path of the file that was read, or the path at which there is none."""
    file = path()
    if not file:
        return f"none, as {VARIABLE} is empty"
    return file if os.path.exists(file) else f"none: there is no {file}"


def sources() -> dict[str, str]:
    """Return where the value of each variable of ours is from: the file or ``environment``."""
    from mpicoll.machine.variables import VARIABLES

    return {
        name: path() if os.environ[name] == _values.get(name) else "environment"
        for name in sorted(VARIABLES)
        if name in os.environ
    }
