"""Two runs compared: what is faster, what slower, and when there is no verdict."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as some
from scipy.stats import mannwhitneyu

from mpicoll.compare.__main__ import main
from mpicoll.compare.comparison import Comparison, compare, load
from mpicoll.compare.two_sample import Shift, can_differ, correlation, holm, scatter, shift
from mpicoll.records.description import FullRun

RUN = {
    "id": "a", "versions": {"numpy": "2"}, "libraries": {"mpi4py": "MPICH 5"}, "transports": {},
    "hosts": ["n1", "n1"], "cores": [[0], [1]], "quota": None, "stack": {}, "environment": {},
    "settings": {},
}  # fmt: skip


def times(median: float, seed: int = 0, count: int = 12, spread: float = 0.02) -> list[float]:
    dice = random.Random(seed)
    return [median * dice.lognormvariate(0, spread) for _ in range(count)]


def record(algorithm: str, samples: Sequence[float], **more: Any) -> dict[str, Any]:
    return {
        "schema": 1, "kind": "case", "run": RUN, "collective": "allreduce", "algorithm": algorithm,
        "executed": algorithm, "backend": "mpi4py", "library": "MPICH 5", "transport": "symmetric",
        "device": "cpu", "dtype": "float32", "op": "sum", "root": None, "in_place": False,
        "allocated": False, "ranks": 2, "nodes": 1, "bytes_total": 1024, "timing": "together",
        "samples": len(samples), "samples_us": list(samples), "undisturbed": True, "message": "",
        "time_us": dict.fromkeys(("median", "low", "high"), sorted(samples)[len(samples) // 2])
        if samples else None,
        "correct": True, **more,
    }  # fmt: skip


def write(path: Path, records: Sequence[dict[str, Any]], run: dict[str, Any] = RUN) -> Path:
    lines = [
        {"schema": 1, "kind": "run", "run": run},
        *({**fields, "run": {"id": run["id"]}} for fields in records),
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def compare_files(tmp_path: Path, a: Sequence[Any], b: Sequence[Any], **run: Any) -> Comparison:
    files = write(tmp_path / "a", a), write(tmp_path / "b", b, RUN | {"id": "b"} | run)
    return compare(*map(load, files))


# -- two samples ------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "p"), [(2.0, 0.001), (1.2, 0.001), (1 / 1.2, 0.001)])
def test_a_factor_is_found(factor: float, p: float) -> None:
    ratio = shift(times(5.0, 1), times(5.0 / factor, 2))
    assert ratio.low < factor < ratio.high and ratio.p < p
    assert ratio.ratio == pytest.approx(factor, rel=0.03)


def zigzag(samples: Sequence[float]) -> list[float]:
    """Order samples so that neighbours are unlike: their correlation is below 0."""
    ordered, half = sorted(samples), len(samples) // 2
    return [
        sample
        for pair in zip(ordered[:half], ordered[: half - 1 : -1], strict=True)
        for sample in pair
    ]


@pytest.mark.parametrize("margin", [0.0, 0.03])
@pytest.mark.parametrize(("count", "method"), [(6, "exact"), (30, "exact"), (60, "asymptotic")])
def test_without_correlation_the_test_is_that_of_scipy(
    count: int, method: Any, margin: float
) -> None:
    first, second = (zigzag(times(us, seed, count)) for us, seed in ((1.0, 1), (0.96, 2)))
    expected = min(
        mannwhitneyu(
            slow, (1 + margin) * np.array(fast), alternative="greater", method=method
        ).pvalue
        for slow, fast in ((first, second), (second, first))
    )
    assert shift(first, second, margin).p == pytest.approx(min(1, 2 * expected), rel=1e-9)


@given(some.lists(some.floats(0.1, 1e4), min_size=4, max_size=25),
       some.lists(some.floats(0.1, 1e4), min_size=4, max_size=25))  # fmt: skip
def test_swapping_the_runs_inverts_the_ratio(a: list[float], b: list[float]) -> None:
    ratio, inverse = shift(a, b), shift(b, a)
    assert ratio.ratio == pytest.approx(1 / inverse.ratio, rel=1e-6) or len(a) * len(b) % 2 == 0
    assert ratio.low == pytest.approx(1 / inverse.high) and ratio.p == pytest.approx(inverse.p)
    assert ratio.low <= ratio.ratio <= ratio.high


def test_equals_are_called_different_as_rarely_as_promised() -> None:
    is_different = [
        shift(times(3.0, 2 * n, 10), times(3.0, 2 * n + 1, 10)).p < 0.05 for n in range(1000)
    ]
    assert sum(is_different) / 1000 <= 0.065


def test_correlated_samples_count_for_less() -> None:
    """Waves as long as half a run would be taken for differences, were they independent."""
    dice = random.Random(4)

    def wave() -> list[float]:
        level, levels = 1.0, []
        for _ in range(40):
            level = 0.8 * level + dice.gauss(0.2, 0.02)
            levels.append(level)
        return levels

    waves = [(wave(), wave()) for _ in range(400)]
    assert sum(shift(a, b).p < 0.05 for a, b in waves) / 400 < 0.15
    assert (correlation(waves[0][0]) or 0) > 0.4


@pytest.mark.parametrize(("a", "b", "can"), [(3, 3, False), (4, 4, True), (0, 9, False)])
def test_few_samples_carry_no_interval(a: int, b: int, can: bool) -> None:
    assert can_differ(a, b) is can


@given(some.lists(some.floats(0, 1), min_size=1, max_size=40))
def test_holm_finds_no_more_than_single_tests(chances: list[float]) -> None:
    significant = holm(chances)
    assert all(
        chance <= 0.05 for chance, is_real in zip(chances, significant, strict=True) if is_real
    )
    assert not any(chances[n] < min(chances) for n, is_real in enumerate(significant) if is_real)


def test_equals_that_differ_give_the_scatter() -> None:
    equals = [Shift(1.0, 0.9, 1.1, 1.0)] * 18 + [Shift(1.3, 1.2, 1.4, 0.0)] * 2
    assert scatter(equals) == pytest.approx(1.2)


# -- verdicts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("us", "verdict"), [(2.0, "faster"), (4.0, "tie"), (3.95, "tie"), (8.0, "slower")]
)
def test_verdicts(us: float, verdict: str, tmp_path: Path) -> None:
    comparison = compare_files(
        tmp_path, [record("ring", times(4.0))], [record("ring", times(us, 1))]
    )
    assert [row.verdict for row in comparison.rows] == [verdict]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"correct": False}, "wrong in B"),
        (
            {"time_us": None, "samples": 0, "samples_us": [], "message": "no such thing"},
            "refused in B: no such thing",
        ),
        ({"undisturbed": False}, "too few undisturbed samples in B"),
        ({"timing": "loop"}, "timed together in A, loop in B"),
        ({"samples": 1, "samples_us": [1.0]}, "too few samples: 12 and 1"),
    ],
)
def test_cases_that_cannot_be_compared_have_no_verdict(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    comparison = compare_files(
        tmp_path, [record("ring", times(4.0))], [record("ring", times(1.0)) | change]
    )
    assert [(row.verdict, row.reason) for row in comparison.rows] == [("no verdict", reason)]


def test_a_case_of_one_run_has_no_verdict(tmp_path: Path) -> None:
    a, b = record("ring", times(4.0)), record("bruck", times(4.0))
    comparison = compare_files(tmp_path, [a], [b])
    assert [row.reason for row in comparison.rows] == ["only in A", "only in B"]


def natives(factor: float) -> list[dict[str, Any]]:
    return [
        record("native", times(factor * 4.0, size, 12), bytes_total=4 << size) for size in range(12)
    ]


def test_a_slower_machine_does_not_make_a_schedule_slower(tmp_path: Path) -> None:
    """All native calls are slower by a third, and so is the schedule: it is not called slower."""
    a = [*natives(1.0), record("ring", times(4.0, 90))]
    b = [*natives(1.33), record("ring", times(5.3, 91))]
    comparison = compare_files(tmp_path, a, b)
    assert comparison.controls == 12 and 1.25 < comparison.factor < 1.4
    assert not comparison.counts()["slower"]


def test_natives_of_another_library_are_no_controls(tmp_path: Path) -> None:
    comparison = compare_files(
        tmp_path, natives(1.0), natives(1.33), libraries={"mpi4py": "Open MPI"}
    )
    assert (comparison.controls, comparison.factor) == (0, 1.0)
    assert comparison.counts()["slower"] == 12
    assert any("libraries.mpi4py was 'MPICH 5'" in remark for remark in comparison.remarks)


def test_the_latest_record_of_a_case_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [record("ring", times(4.0)), record("ring", times(2.0, 1))])
    (only,) = load(path).values()
    assert only.time_us and only.time_us.median == pytest.approx(2.0, rel=0.1)
    assert isinstance(only.run, FullRun) and only.run.versions == RUN["versions"]


# -- the command ------------------------------------------------------------------------


def command(tmp_path: Path, a: float, b: float, *flags: str) -> Result:
    files = [
        write(tmp_path / name, [record("ring", times(us, seed))], RUN | {"id": name})
        for seed, (name, us) in enumerate((("a", a), ("b", b)))
    ]
    return CliRunner().invoke(main, [*map(str, files), *flags])


@pytest.mark.parametrize(("b", "status"), [(2.0, 0), (4.0, 0), (8.0, 1)])
def test_the_exit_status_says_whether_something_is_slower(
    b: float, status: int, tmp_path: Path
) -> None:
    result = command(tmp_path, 4.0, b)
    assert result.exit_code == status, result.stdout
    assert "allreduce" in result.stdout and "# B against A, by more than 3 %" in result.stdout


def test_a_margin_forgives(tmp_path: Path) -> None:
    assert command(tmp_path, 4.0, 4.4, "--margin", "25").exit_code == 0


@pytest.mark.parametrize("layout", ["csv", "jsonl", "markdown"])
def test_programs_read_every_layout(layout: str, tmp_path: Path) -> None:
    text = command(tmp_path, 4.0, 8.0, "--format", layout).stdout
    if layout == "csv":
        (row,) = csv.DictReader(
            io.StringIO("".join(f"{line}\n" for line in text.splitlines() if line[0] != "#"))
        )
    elif layout == "jsonl":
        row = json.loads(text.splitlines()[0])
    else:
        head, _, cells = (
            line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")
        )
        row = {name.strip(): cell.strip() for name, cell in zip(head, cells, strict=True)}
    assert row["verdict"] == "slower" and row["algorithm"] == "ring"


def test_a_file_without_cases_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    result = CliRunner().invoke(main, [str(path), str(path)])
    assert result.exit_code == 2 and "has no records of cases" in result.output
