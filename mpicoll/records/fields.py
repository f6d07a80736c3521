"""The types of the fields of records: bounds beyond which a value is impossible."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

_LARGEST = 1 << 60
Integer = Annotated[int, Meta(ge=-_LARGEST, le=_LARGEST)]
Count = Annotated[int, Meta(ge=0, le=_LARGEST)]
Ranks = Annotated[int, Meta(ge=1, le=1 << 20)]
Amount = Annotated[float, Meta(ge=0, le=_LARGEST)]
Positive = Annotated[float, Meta(ge=1e-15, le=_LARGEST)]
"""A time, a bandwidth or a ratio: its reciprocal is a number too."""
Name = Annotated[str, Meta(max_length=1 << 10)]
"""A text that stands in a column of a table, which is as wide as the longest."""
Verdict = Literal["faster", "slower", "tie"]
