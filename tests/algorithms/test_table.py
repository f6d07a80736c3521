"""Docstrings say what the simulator finds, and the table in README.md what docstrings say."""

from __future__ import annotations

import pytest
from catalogue import CATALOGUE, label
from click.testing import CliRunner

from mpicoll.algorithms import table
from mpicoll.algorithms.__main__ import main
from mpicoll.algorithms.registry import Algorithm
from mpicoll.simulator import is_ordered

REDUCING = [each for each in CATALOGUE if each.collective.reduces]


@pytest.mark.parametrize("each", CATALOGUE, ids=label)
def test_a_docstring_says_idea_rounds_and_bytes(each: Algorithm) -> None:
    found = table.row(each)
    assert each.summary.endswith(".")
    assert found.idea and found.rounds
    assert found.bytes or each.collective.unit == "none" or "bytes" in found.rounds


@pytest.mark.parametrize("each", REDUCING, ids=label)
def test_a_docstring_says_whether_rank_order_is_kept(each: Algorithm) -> None:
    sizes = [size for size in (*range(2, 10), 12, 16, 17) if each.needs.holds(size)]
    ordered = all(is_ordered(each, size) for size in sizes)
    assert (table.row(each).order == "yes") is ordered, table.UNORDERED


def readme() -> dict[tuple[str, str], str]:
    """Return the lines of the checked-in table by collective and first cell."""
    found, collective = {}, ""
    _, _, generated = table.README.read_text("utf-8").partition(table.MARKER)
    for line in generated.splitlines():
        if line.startswith("### "):
            collective = line[4:]
        if line.startswith("| `"):
            found[collective, line.split("`")[1].split("(")[0].strip()] = line
    return found


@pytest.mark.parametrize("each", CATALOGUE, ids=label)
def test_the_readme_says_the_same(each: Algorithm) -> None:
    """One that is not in it yet is no fault: its generator is all that must be written."""
    line = readme().get((each.collective.name, each.name))
    if line is None:
        pytest.skip("new: python -m mpicoll.algorithms --update adds it to README.md")
    assert line == table.line(table.row(each)), "python -m mpicoll.algorithms --update"


def test_the_readme_has_no_other_algorithms() -> None:
    assert readme().keys() <= {(each.collective.name, each.name) for each in CATALOGUE}


@pytest.mark.parametrize("arguments", [[], ["--markdown"]], ids=["table", "markdown"])
def test_the_command_prints_one_collective(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["all_gather", *arguments])
    assert done.exit_code == 0
    assert "sparbit" in done.output and "rabenseifner" not in done.output


def test_the_command_refuses_unknown_collectives() -> None:
    done = CliRunner().invoke(main, ["allgahter"])
    assert done.exit_code == 2 and "did you mean 'allgather'?" in done.output
