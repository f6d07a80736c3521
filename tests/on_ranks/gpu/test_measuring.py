"""The harness, tables and copies measured on GPUs."""

from __future__ import annotations

from pathlib import Path

from mpicoll import Collectives
from mpicoll.bench.record import case_records
from mpicoll.cli.watchdog import Watchdog
from mpicoll.measurement.candidate import Settings
from mpicoll.measurement.cases import CUDA, Wanted, cases, groups
from mpicoll.measurement.gpu_copy import copy_bandwidth
from mpicoll.measurement.measure import Bench
from mpicoll.records.description import Run
from mpicoll.selection import tables
from mpicoll.selection.auto import layout
from mpicoll.tune import run as tuning


def test_the_harness_measures_gpu_arrays(g: Collectives) -> None:
    """Records say where the arrays lay, which way they went, and both times."""
    wanted = Wanted(
        collectives=("allreduce", "scatter"), sizes=(4096,), device=CUDA,
        algorithms=("ring@ipc", "ring@staged", "binomial@ipc", "auto"),
    )  # fmt: skip
    bench = Bench({g.backend: g}, Settings(samples=3, min_samples=3), Watchdog(0))
    found = [
        record
        for group in groups(wanted, g.size)
        for record in case_records(
            bench, bench.measure(cases(group, bench.worlds, wanted), 1.0), Run()
        )
    ]
    assert {each.device for each in found} == {CUDA}
    ran = [each for each in found if not each.message]
    assert {each.algorithm for each in ran} >= {"native", "auto"}
    for each in ran:
        assert each.correct is True
        assert each.time_us.median > 0
        assert each.host_us is not None and each.host_us.median > 0
        asked = each.algorithm.partition("@")[2]
        if asked and g.size > 1:
            assert each.transport == asked


def test_a_table_is_measured_on_gpus(g: Collectives, tmp_path: Path) -> None:
    """`auto` of arrays there reads it, and no other's."""
    path = Path(g.exchange(str(tmp_path / "table.json"))[0])
    wanted = Wanted(("allreduce",), (), (4096,), device=CUDA)
    given = (g.backend,), 20.0, path, 0.0, None
    tuning.run(tuning.Options(wanted, *given, resume=False), {g.backend: lambda interface: g})
    key = g.backend, g.transport.library, layout(g.nodes), path
    gpu = g.transport.arrays.gpu_name(g.gpu())
    assert "allreduce" in tables.load(*key, gpu)
    assert tables.load(*key) == {}


def test_copy_bandwidth_is_that_of_one_rank(g: Collectives) -> None:
    found = g.exchange(copy_bandwidth(g, g.gpu(), 1 << 20))
    assert found[0] > 0 and set(found) == {found[0]}
