"""The JSON Schema of a line of records."""

from __future__ import annotations

from typing import Any

from msgspec.json import schema_components

from mpicoll.records.lines import KINDS


def json_schema() -> dict[str, Any]:
    """Return the schema that every line of a file fulfils: it is one of the kinds."""
    alternatives, definitions = schema_components(KINDS.values(), ref_template="#/$defs/{name}")
    for name, kind in KINDS.items():
        # Only a case may lack its kind; no line may lack its schema.
        definitions[kind.__name__]["required"] += (
            ["schema"] if name == "case" else ["schema", "kind"]
        )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of mpicoll's records",
        "anyOf": list(alternatives),
        "$defs": definitions,
    }
