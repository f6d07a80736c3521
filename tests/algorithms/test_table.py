"""Docstrings say what the simulator finds, and the table in README.md what docstrings say."""

from __future__ import annotations

import pytest
from catalogue import CATALOGUE, label
from click.testing import CliRunner

from mpicoll.algorithms import table
from mpicoll.algorithms.__main__ import main
from mpicoll.algorithms.registry import Algorithm
from mpicoll.simulator import is_ordered

REDUCING = [algorithm for algorithm in CATALOGUE if algorithm.collective.reduces]


@pytest.mark.parametrize("algorithm", CATALOGUE, ids=label)
def test_a_docstring_says_idea_rounds_and_bytes(algorithm: Algorithm) -> None:
    row = table.row(algorithm)
    assert algorithm.summary.endswith(".")
    assert row.idea and row.rounds
    assert row.bytes or algorithm.collective.unit == "none" or "bytes" in row.rounds


@pytest.mark.parametrize("algorithm", REDUCING, ids=label)
def test_a_docstring_says_whether_rank_order_is_kept(algorithm: Algorithm) -> None:
    sizes = [size for size in (*range(2, 10), 12, 16, 17) if algorithm.needs.holds(size)]
    ordered = all(is_ordered(algorithm, size) for size in sizes)
    assert (table.row(algorithm).order == "yes") is ordered, table.UNORDERED


def readme() -> dict[tuple[str, str], str]:
    """Return the lines of the checked-in table by collective and first cell."""
    lines, collective = {}, ""
    _, _, generated = table.README.read_text("utf-8").partition(table.MARKER)
    for line in generated.splitlines():
        if line.startswith("### "):
            collective = line[4:]
        if line.startswith("| `"):
            lines[collective, line.split("`")[1].split("(")[0].strip()] = line
    return lines


@pytest.mark.parametrize("algorithm", CATALOGUE, ids=label)
def test_the_readme_says_the_same(algorithm: Algorithm) -> None:
    """One that is not in it yet is no fault: its generator is all that must be written."""
    line = readme().get((algorithm.collective.name, algorithm.name))
    if line is None:
        pytest.skip("new: python -m mpicoll.algorithms --update adds it to README.md")
    assert line == table.line(table.row(algorithm)), "python -m mpicoll.algorithms --update"


def test_the_readme_has_no_other_algorithms() -> None:
    assert readme().keys() <= {
        (algorithm.collective.name, algorithm.name) for algorithm in CATALOGUE
    }


@pytest.mark.parametrize("arguments", [[], ["--markdown"]], ids=["table", "markdown"])
def test_the_command_prints_one_collective(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["all_gather", *arguments])
    assert result.exit_code == 0
    assert "sparbit" in result.output and "rabenseifner" not in result.output


def test_the_command_refuses_unknown_collectives() -> None:
    result = CliRunner().invoke(main, ["allgahter"])
    assert result.exit_code == 2 and "did you mean 'allgather'?" in result.output
