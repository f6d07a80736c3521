"""The parts of the pages that are generated: the commands, the algorithms, and their lists.

A page names a part by a comment, ``<!-- generated: commands -->``, which `fill` replaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, get_args, get_origin

import click
from msgspec import NODEFAULT, UNSET, Struct, UnsetType
from msgspec.structs import FieldInfo, fields

from mpicoll.algorithms import table
from mpicoll.measurement.worlds import ALL_BACKENDS, TORCH_BACKEND
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.records.description import Run
from mpicoll.records.lines import CaseRecord, FirstWrong, SpeedupVsStrongest, Times
from mpicoll.study.description import Description, Environment, Factors

_PACKAGES = Path(__file__).parents[2]
_MAIN = '\nif __name__ == "__main__":\n'
_COMMENT = r"<!-- generated: (\w+) -->"
_SPECIAL = r"((`+).*?\2)|([\\*_<>$|\[\]])"


def fill(page: str) -> str:
    """Return a page with the Markdown of all parts that its comments name.

    >>> fill("<!-- generated: algorithms -->").startswith("## barrier")
    True
    """
    return re.sub(_COMMENT, lambda comment: PARTS[comment[1]](), page)


# -- the commands -----------------------------------------------------------------------------


def commands() -> dict[str, ModuleType]:
    """Return the module of each command, by the name after ``python -m``."""
    names = [
        ".".join(path.relative_to(_PACKAGES).with_suffix("").parts)
        for package in ("mpicoll", "torchcoll")
        for path in sorted((_PACKAGES / package).rglob("*.py"))
        if path.parent.name != "cli" and _MAIN in path.read_text("utf-8")
    ]
    modules = {name.removesuffix(".__main__"): import_module(name) for name in names}
    modules["mpicoll.tune export"] = import_module("mpicoll.tune.exports.command")
    return {name: module for name, module in modules.items() if _is_command(module)}


def _is_command(module: ModuleType) -> bool:
    """Whether a module has a command line for users; groups only repeat their commands."""
    main = getattr(module, "main", None)
    if isinstance(main, click.Command):
        return not isinstance(main, click.Group)
    return "\nusage: " in (module.__doc__ or "")


def _commands() -> str:
    return "\n\n".join(_command(name, module) for name, module in sorted(commands().items()))


def _command(name: str, module: ModuleType) -> str:
    if isinstance(module.main, click.Command):
        return f"## {name}\n\n{_click_command(name, module.main)}"
    return f"## {name}\n\n```text\n{(module.__doc__ or '').strip()}\n```"


def _click_command(name: str, command: click.Command) -> str:
    """Return the usage, the help and the options of a command."""
    makers = TORCH_BACKEND if name.startswith("torchcoll.") else ALL_BACKENDS
    context = click.Context(command, info_name=f"python -m {name}", color=False, obj=makers)
    usage = " ".join(command.collect_usage_pieces(context))
    paragraphs = [
        _escaped(" ".join(paragraph.split()))
        for paragraph in (command.help or "").replace("\b", "").split("\n\n")
    ]
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [_option(*record) for record in records if record and record[1]]
    lines = ["| option | meaning |", "| --- | --- |", *rows]
    return "\n\n".join([f"```text\npython -m {name} {usage}\n```", *paragraphs, "\n".join(lines)])


def _option(names: str, meaning: str) -> str:
    escaped_names = names.replace("|", "\\|")
    return f"| ``{escaped_names}`` | {_escaped(' '.join(meaning.split()))} |"


def _escaped(text: str) -> str:
    """Return text whose characters Markdown takes as they are; code stays code."""

    def escape(match: re.Match[str]) -> str:
        return match[1] or f"\\{match[3]}"

    return re.sub(_SPECIAL, escape, text)


# -- the algorithms ---------------------------------------------------------------------------


def _algorithms() -> str:
    return "\n\n".join(_collective(name) for name in COLLECTIVES)


def _collective(name: str) -> str:
    """Return the heading of a collective and the table of its algorithms."""
    return f"## {name}\n\n" + "\n".join(_table_lines(table.markdown((name,))))


def _table_lines(markdown: str) -> Iterator[str]:
    return (line for line in markdown.splitlines() if line.startswith("|"))


# -- the keys of files ------------------------------------------------------------------------


def _study() -> str:
    structs: dict[str, type[Struct]] = {
        "The file": Description,
        "environments": Environment,
        "factors": Factors,
    }
    return "\n\n".join(f"## {title}\n\n{_keys(struct)}" for title, struct in structs.items())


def _case() -> str:
    structs: dict[str, type[Struct]] = {
        "time_us, host_us": Times,
        "speedup_vs_native, speedup_vs_other, speedup_vs_strongest": SpeedupVsStrongest,
        "first_wrong": FirstWrong,
        "run": Run,
    }
    parts = [f"## {title}\n\n{_keys(struct)}" for title, struct in structs.items()]
    return "\n\n".join([_keys(CaseRecord), *parts])


def _keys(struct: type[Struct]) -> str:
    """Return the table of the keys of a class, with their types, defaults and meanings."""
    meanings = _meanings(struct)
    lines = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for field in fields(struct):
        cells = [f"``{field.encode_name}``", _type(field.type), _default(field)]
        lines.append(f"| {' | '.join(cells)} | {meanings.get(field.name, '')} |")
    return "\n".join(lines)


def _meanings(struct: type[Struct]) -> dict[str, str]:
    """Return what the docstring of a class says of each key.

    >>> _meanings(Description)["timeout"]
    'seconds after which a step of a launch counts as hung.'
    """
    attributes = "".join(
        cleandoc(base.__doc__ or "").partition("Attributes:\n")[2] + "\n"
        for base in reversed(struct.__mro__)
    )
    meanings = {}
    for entry in re.split(r"\n(?=    \w)", f"\n{attributes}"):
        names, _, meaning = " ".join(entry.split()).partition(": ")
        for name in names.split(", "):
            meanings[name] = _escaped(meaning)
    return meanings


def _type(kind: Any) -> str:
    """Return a type as words.

    >>> _type(list[int]), _type(Literal["a", "b"] | None)
    ('list of int', '``a``, ``b``')
    """
    absent = (type(None), UnsetType)
    arguments = [argument for argument in get_args(kind) if argument not in absent]
    origin = get_origin(kind)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return ", ".join(f"``{value}``" for value in arguments)
    if origin in (list, dict):
        return f"{origin.__name__} of {_type(arguments[-1])}"
    if arguments:
        return " or ".join(dict.fromkeys(map(_type, arguments)))
    return str(getattr(kind, "__name__", kind))


def _default(field: FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default_factory is NODEFAULT:
        return "" if field.default in (None, UNSET, "") else f"``{field.default}``"
    value = field.default_factory()
    is_plain = isinstance(value, list) and value
    return ", ".join(f"``{item}``" for item in value) if is_plain else ""


PARTS: dict[str, Callable[[], str]] = {
    "algorithms": _algorithms, "case": _case, "commands": _commands, "study": _study,
}  # fmt: skip
"""The parts by the names that comments give them."""
