"""Records as columns of one type each: files of Parquet and Arrow, for data frames and databases.

A row is a case. The columns are all fields that `flat` may give, behind those of the run. Their
types are those of the fields, so that a column of nulls has its type too. The other records (runs,
launches, pairs of ranks) stand in the metadata of the file. Samples are left out.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from gzip import compress, decompress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import to_builtins

from mpicoll.errors import ArgumentError
from mpicoll.records.description import Run
from mpicoll.records.flat import LEFT_OUT, NESTED, flat
from mpicoll.records.lines import KINDS, CaseRecord, Record, RunRecord
from mpicoll.text.files import content_of

if TYPE_CHECKING:
    import pyarrow

_TYPES = {bool: "bool", int: "int64", float: "float64", str: "string"}
_OF_RUN = ("id", "started", "threads", "load", "oversubscribed")
_SAMPLES = "samples_us", "blocks", "visits_us"
_METADATA = b"mpicoll.records"
"""The key of the records that are no cases: lines of JSON, by gzip and base64."""
FORMATS = ".parquet", ".arrow"


def table(records: Sequence[Record]) -> pyarrow.Table:
    """Return the cases as a table, a row each, in their order; its metadata has the rest."""
    import pyarrow

    cases = [record for record in records if isinstance(record, CaseRecord)]
    schema = pyarrow.schema(
        [(name, pyarrow.type_for_alias(kind)) for name, kind in _columns()],
        metadata={_METADATA: _encode(records)},
    )
    return pyarrow.Table.from_pylist([_row(record) for record in cases], schema)


def save(records: Sequence[Record], path: Path, suffix: str) -> None:
    """Write records to a file; its format is that of the suffix, one of `FORMATS`."""
    from pyarrow import feather, parquet

    if suffix == ".parquet":
        parquet.write_table(table(records), path, compression="zstd")
    else:
        feather.write_feather(table(records), str(path), compression="uncompressed")


def load(path: Path) -> list[Record]:
    """Return the records of a file that `save` has written, without their samples.

    Raises:
        ArgumentError: pyarrow is missing, or the file cannot be read or has no records.
    """
    try:
        import pyarrow
        from pyarrow import feather, parquet
    except ImportError:
        raise ArgumentError(f"{path} needs pyarrow: pip install 'mpicoll[arrow]'") from None
    content = content_of(path)
    read = parquet.read_table if content.startswith(b"PAR1") else feather.read_table
    try:
        columns = read(BytesIO(content))
        others = _decode((columns.schema.metadata or {})[_METADATA])
        runs = {record.run.id: record.run for record in others if isinstance(record, RunRecord)}
        return [*others, *(_case(row, runs) for row in columns.to_pylist())]
    except (pyarrow.ArrowException, msgspec.MsgspecError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise ArgumentError(f"{path} has no records of mpicoll: {reason}") from None


def _row(record: CaseRecord) -> dict[str, Any]:
    return {f"run.{name}": getattr(record.run, name) for name in _OF_RUN} | flat(record)


def _case(row: dict[str, Any], runs: dict[str, Any]) -> CaseRecord:
    """Return the case of a row."""
    fields: dict[str, Any] = {}
    for column, value in row.items():
        name, _, part = column.partition(".")
        if value is not None and part:
            fields.setdefault(name, {})[part] = value
        elif not part and (value is not None or name in _NULLABLE):
            fields[name] = value
    run = fields["run"]
    fields["run"] = to_builtins(runs[run["id"]]) if run["id"] in runs else run
    return msgspec.convert({"time_us": None, **fields}, CaseRecord)


def _encode(records: Sequence[Record]) -> bytes:
    others = [_without_samples(record) for record in records if not isinstance(record, CaseRecord)]
    return b64encode(compress(b"\n".join(map(msgspec.json.encode, others)), mtime=0))


def _without_samples(record: Record) -> dict[str, Any]:
    return {name: value for name, value in to_builtins(record).items() if name not in _SAMPLES}


def _decode(content: bytes) -> list[Record]:
    lines = decompress(b64decode(content)).splitlines()
    fields = map(msgspec.json.decode, lines)
    return [msgspec.convert(line, KINDS[line["kind"]]) for line in fields]


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


_NULLABLE = {
    name for name, kind in get_type_hints(CaseRecord).items() if type(None) in get_args(kind)
}
"""The fields of a case that may be None."""
