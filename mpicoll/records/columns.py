"""Cases as columns of one type each: files of Parquet and Arrow, for data frames and databases.

The columns are the fields of `flat`, behind what the record tells of its run. Their types are those
of the fields, so that a column of nulls has its type too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from mpicoll.records.flat import flat
from mpicoll.records.lines import CaseRecord, Run

if TYPE_CHECKING:
    import pyarrow

_TYPES = {bool: "bool", int: "int64", float: "float64", str: "string"}
_OF_RUN = ("id", "started", "threads", "load", "oversubscribed")
FORMATS = ".parquet", ".arrow"


def table(records: Sequence[CaseRecord]) -> pyarrow.Table:
    """Return the cases as a table, a row each, in their order."""
    import pyarrow

    schema = pyarrow.schema([(name, pyarrow.type_for_alias(kind)) for name, kind in _columns()])
    return pyarrow.Table.from_pylist([_row(each) for each in records], schema)


def save(records: Sequence[CaseRecord], path: Path, suffix: str) -> None:
    """Write the cases to a file; its format is that of the suffix, one of `FORMATS`."""
    from pyarrow import feather, parquet

    if suffix == ".parquet":
        parquet.write_table(table(records), path)
    else:
        feather.write_feather(table(records), str(path), compression="uncompressed")


def _row(record: CaseRecord) -> dict[str, Any]:
    return {f"run.{name}": getattr(record.run, name) for name in _OF_RUN} | flat(record)


def _columns() -> Iterator[tuple[str, str]]:
    """Yield the columns with their types."""
    of_run = get_type_hints(Run, include_extras=True)
    for name in _OF_RUN:
        yield f"run.{name}", _type(of_run[name])
    for name, hint in _flat_hints():
        yield name, _type(hint)


def _flat_hints() -> Iterator[tuple[str, Any]]:
    """Yield the names that `flat` gives, with the types of their fields."""
    hints = get_type_hints(CaseRecord, include_extras=True)
    empty = CaseRecord(
        run=Run(), collective="", algorithm="", backend="", dtype=None, op=None, root=None,
        in_place=False, ranks=1, bytes_total=0, time_us=None, correct=None,
    )  # fmt: skip
    for name in flat(empty):
        outer, _, inner = name.partition(".")
        hint = hints[outer]
        if inner:
            hint = get_type_hints(_struct(hint), include_extras=True)[inner]
        yield name, hint


def _struct(hint: Any) -> Any:
    """Return the class in ``Class | None``."""
    return next(each for each in get_args(hint) if each is not type(None))


def _type(hint: Any) -> str:
    """Return the name of the column's type for that of a field, whose value may be missing."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _type(get_args(hint)[0])
    if origin in (Union, UnionType):
        return _type(next(each for each in get_args(hint) if each is not type(None)))
    if origin is Literal:
        return "string"
    return _TYPES[hint]
