"""Docstrings say what the simulator finds, and the table what docstrings say."""

from __future__ import annotations

import pytest
from catalogue import CATALOGUE, label
from click.testing import CliRunner

from mpicoll.algorithms import table
from mpicoll.algorithms.registry import Algorithm
from mpicoll.explain.catalogue import main
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


@pytest.mark.parametrize("arguments", [[], ["--markdown"]], ids=["table", "markdown"])
def test_the_command_prints_one_collective(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["all_gather", *arguments])
    assert result.exit_code == 0
    assert "sparbit" in result.output and "rabenseifner" not in result.output


def test_the_command_refuses_unknown_collectives() -> None:
    result = CliRunner().invoke(main, ["allgahter"])
    assert result.exit_code == 2 and "did you mean 'allgather'?" in result.output
