"""The pictures of the collectives: they say what the contract says, and fit into a phone."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from mpicoll.docs.pictures import picture
from mpicoll.notation.contract import COLLECTIVES

LABELS = {
    "broadcast": ["A", "A A A"],
    "reduce": ["A B C", "A+B+C"],
    "allreduce": ["A B C", "A+B+C A+B+C A+B+C"],
    "gather": ["A B C", "A B C"],
    "allgather": ["A B C", "A B C A B C A B C"],
    "scatter": ["A0 A1 A2", "A0 A1 A2"],
    "reduce_scatter": ["A0 A1 A2 B0 B1 B2 C0 C1 C2", "A0+B0+C0 A1+B1+C1 A2+B2+C2"],
    "alltoall": ["A0 A1 A2 B0 B1 B2 C0 C1 C2", "A0 B0 C0 A1 B1 C1 A2 B2 C2"],
    "scan": ["A B C", "A A+B A+B+C"],
    "exscan": ["A B C", "A A+B"],
}


@pytest.mark.parametrize("name", LABELS)
def test_a_picture_shows_the_data_before_and_after(name: str) -> None:
    shapes = ElementTree.fromstring(picture(name)).iter("text")
    texts = [shape.text or "" for shape in shapes]
    before, after = texts.index("before"), texts.index("after")
    assert [" ".join(texts[before + 1 : after]), " ".join(texts[after + 1 :])] == LABELS[name]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_picture_fits_into_a_phone_and_has_words(name: str) -> None:
    root = ElementTree.fromstring(picture(name))
    assert int(root.attrib["width"]) <= 400 - 32
    assert re.search(r"rank", root.attrib["aria-label"])
    ends = [int(box.attrib["x"]) + int(box.attrib["width"]) for box in root.iter("rect")]
    assert max(ends, default=0) <= int(root.attrib["width"])
