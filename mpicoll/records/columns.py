"""Cases as columns of one type each: files of Parquet and Arrow, for data frames and databases.

The columns are all fields that `flat` may give, behind those of the run. Their types are those of
the fields, so that a column of nulls has its type too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from mpicoll.records.description import Run
from mpicoll.records.flat import LEFT_OUT, NESTED, flat
from mpicoll.records.lines import CaseRecord

if TYPE_CHECKING:
    import pyarrow

_TYPES = {bool: "bool", int: "int64", float: "float64", str: "string"}
_OF_RUN = ("id", "started", "threads", "load", "oversubscribed")
FORMATS = ".parquet", ".arrow"


def table(records: Sequence[CaseRecord]) -> pyarrow.Table:
    """Return the cases as a table, a row each, in their order."""
    import pyarrow

    schema = pyarrow.schema([(name, pyarrow.type_for_alias(kind)) for name, kind in _columns()])
    return pyarrow.Table.from_pylist([_row(record) for record in records], schema)


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
    of_run = get_type_hints(Run)
    for name in _OF_RUN:
        yield f"run.{name}", _type(of_run[name])
    for name, hint in get_type_hints(CaseRecord).items():
        if name in NESTED:
            for inner, kind in get_type_hints(NESTED[name]).items():
                yield f"{name}.{inner}", _type(kind)
        elif name not in LEFT_OUT:
            yield name, _type(hint)


def _type(hint: Any) -> str:
    """Return the name of the column's type for that of a field, whose value may be missing."""
    if get_origin(hint) is Literal:
        return "string"
    return _TYPES[hint] if hint in _TYPES else _type(get_args(hint)[0])
