"""The launches that are planned from a description: their order, algorithms, times and remarks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace
from study_environments import MPICH, OMPI, write_interpreter, write_program

import mpicoll
from mpicoll.errors import ArgumentError
from mpicoll.measurement.cases import Wanted, check_algorithms
from mpicoll.notation.contract import COLLECTIVES as CONTRACTS
from mpicoll.study import default
from mpicoll.study.description import Description, Environment, Factors
from mpicoll.study.environments import LaunchEnvironment, find
from mpicoll.study.planning import Plan, plan
from mpicoll.study.showing import print_plan

COLLECTIVES = [*CONTRACTS]


def test_an_environment_without_algorithms_of_the_library_is_no_remark() -> None:
    environment = dataclasses.replace(MPICH, settings=Environment(name="mpich", algorithms=[]))
    assert not plan(Description(), [environment]).remarks


def test_launches_are_mixed_and_the_seed_decides() -> None:
    study = Description(factors=Factors(ranks=[2, 4], ranks_per_node=[2]))
    first = plan(study, [MPICH, OMPI]).first()
    names = [configuration.name for configuration, _ in first]
    assert first == plan(study, [MPICH, OMPI]).first()
    assert names != sorted(names)
    # Whoever has little time has each configuration: none is launched again before all were.
    count = len(set(names))
    assert len(set(names[:count])) == count
    assert first != plan(Description(seed=1, factors=study.factors), [MPICH, OMPI]).first()
    assert {configuration.environment.name for configuration, _ in first[:12]} == {
        "mpich",
        "openmpi",
    }
    every = {configuration.name for configuration in plan(study, [MPICH, OMPI]).configurations}
    assert {"mpich-4-of-2-choice", "mpich-4-of-2-forced1", "mpich-4-of-2-pairs"} <= every


def test_nodes_are_hosts_where_the_launcher_has_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ranks are placed on so many hosts, and more hosts than there are are refused."""
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "4(x2)")
    study = Description(factors=Factors(ranks=[4], ranks_per_node=[2]))
    for environment, option in (MPICH, "-ppn 2 -n 4"), (OMPI, "-N 2 -n 4"):
        command = plan(study, [environment]).configurations[0].command(["-V"])
        assert option in " ".join(command)
    study.factors.ranks_per_node = [1]
    with pytest.raises(ArgumentError, match="nodes of 1 need 4 hosts, and the launcher has 2"):
        plan(study, [MPICH])


@pytest.mark.parametrize(
    ("tasks", "ranks", "widths"), [("4(x2)", 8, [4]), ("4,3", 7, []), ("4", 4, [])]
)
def test_the_default_study_takes_all_ranks_of_an_allocation(
    monkeypatch: pytest.MonkeyPatch, tasks: str, ranks: int, widths: list[int]
) -> None:
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", tasks)
    monkeypatch.setattr(default, "candidates", list)
    factors = default.default_study().factors
    assert (factors.ranks, factors.ranks_per_node) == ([ranks], widths)


@pytest.mark.parametrize("backends", [["mpi4py"], ["torch"]])
@pytest.mark.parametrize("nodes", [[], [1]], ids=["one node", "nodes"])
@pytest.mark.parametrize("collectives", [*([name] for name in COLLECTIVES), COLLECTIVES[:2]])
def test_the_benchmark_takes_every_algorithm_of_a_launch(
    collectives: list[str], nodes: list[int], backends: list[Literal["mpi4py", "torch"]]
) -> None:
    """Of the default algorithms, too, each launch gets those that its collectives have."""
    factors = Factors(collectives=list(collectives), ranks_per_node=nodes, pairs=False)
    settings = Environment(name="x", backends=backends)
    environment = dataclasses.replace(MPICH, settings=settings)
    group = mpicoll.threads(2)
    for configuration in plan(Description(factors=factors), [environment]).configurations:
        arguments = configuration.arguments(Description(factors=factors), 1.0, 0, "x.jsonl")
        algorithms = tuple(arguments[arguments.index("--algorithms") + 1].split(","))
        measured = arguments[2 : arguments.index("--sizes")]
        wanted = Wanted(tuple(measured), algorithms)
        group(lambda c, wanted=wanted: check_algorithms(wanted, {"mpi4py": c}))


@pytest.mark.parametrize(
    ("ranks", "algorithms", "unserved"),
    [
        ([3], ["neighbor_exchange", "ring"], ["neighbor_exchange"]),
        ([3, 4], ["neighbor_exchange"], []),
        ([2], ["native", "auto", "native:reduce+broadcast"], []),
    ],
)
def test_an_algorithm_that_no_launch_can_run_is_a_remark_of_the_plan(
    ranks: list[int], algorithms: list[str], unserved: list[str]
) -> None:
    factors = Factors(ranks=ranks, algorithms=algorithms)
    remarks = plan(Description(factors=factors), [MPICH]).remarks
    assert [remark.split()[0] for remark in remarks] == unserved


def test_two_environments_of_one_name_are_refused(tmp_path: Path) -> None:
    """Their launches would write the same files: a thread level is part of the name."""
    python = write_interpreter(tmp_path)
    write_program(tmp_path / "mpirun", "true")
    levels = Environment(name="x", python=str(python), threads=["single", "multiple"])
    study = Description(environments=[levels, replace(levels, name="X-single", threads=["single"])])
    with pytest.raises(ArgumentError, match="two configurations would be called x-single-2-choice"):
        plan(study, find(study)[0])


def test_a_launch_gets_the_members_of_a_sweep_and_no_algorithm_of_other_backends() -> None:
    factors = Factors(algorithms=["knomial(radix=2:3)", "native_persistent"], pairs=False)
    study = Description(factors=factors)
    for backend, persistent in (("mpi4py", ["native_persistent"]), ("torch", [])):
        settings = Environment(name="x", backends=[backend], algorithms=["none"])
        (launch,) = plan(study, [dataclasses.replace(MPICH, settings=settings)]).configurations
        arguments = launch.arguments(study, 1.0, 0, "x.jsonl")
        names = arguments[arguments.index("--algorithms") + 1].split(",")
        assert names == ["knomial(radix=2)", "knomial(radix=3)", *persistent]


@pytest.mark.parametrize("backends", [["mpi4py"], ["torch"], ["mpi4py", "torch"]])
def test_a_launch_states_the_thread_level_to_mpi_alone(
    backends: list[Literal["mpi4py", "torch"]],
) -> None:
    """The benchmark refuses the option if it does not start MPI."""
    settings = Environment(name="x", backends=backends, algorithms=["none"])
    environment = dataclasses.replace(MPICH, settings=settings, has_torch=True)
    study = Description(factors=Factors(pairs=False))
    for launch in plan(study, [environment]).configurations:
        arguments = launch.arguments(study, 1.0, 0, "x.jsonl")
        assert ("--threads" in arguments) == ("mpi4py" in launch.backends)


def test_the_time_of_a_launch_follows_from_the_minutes() -> None:
    study = Description(minutes=15)
    study_plan = plan(study, [MPICH, OMPI])
    seconds = [
        study_plan.measuring(configuration) + configuration.start_up
        for configuration in study_plan.configurations
        if not configuration.pairs
    ]
    assert 0.8 * 900 < study.launches * sum(seconds) <= 900
    assert plan(Description(seconds=3.5), [MPICH]).seconds == 3.5


def test_a_launch_gets_the_time_that_its_cases_need() -> None:
    """Native and two schedules of allreduce, native and one of broadcast, at two sizes."""
    factors = Factors(
        collectives=["allreduce", "broadcast"], sizes=["64", "1K"],
        algorithms=["ring", "one_shot", "recursive_halving"],
    )  # fmt: skip
    study_plan = plan(Description(seconds=0.01, factors=factors), [OMPI])
    choice = study_plan.configurations[0]
    assert choice.cases(study_plan.study) == 2 * (3 + 2)
    assert study_plan.measuring(choice) == pytest.approx(0.5)


def test_an_estimate_has_what_cases_take_and_what_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On an idle machine a case takes 60 ms, however much time a launch is given."""
    factors = Factors(collectives=["allreduce"], sizes=["64"], algorithms=["ring"], pairs=False)
    study = Description(launches=1, seconds=60.0, factors=factors)
    for names, launched, asking_seconds in (["none"], 2.12, 0), (["allreduce=ring"], 2 * 2.12, 2.1):
        settings = Environment(name="x", algorithms=names)
        study_plan = plan(study, [LaunchEnvironment("x", settings, "single", "MPICH", "", False)])
        assert study_plan.estimate(1) == pytest.approx(launched + asking_seconds)
    print_plan(study_plan)
    assert "2 configurations; where nothing else runs about 6 s\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("estimates", "text"),
    [
        ((100, 170, 220), "3 min, 2 min if the verdicts are soon clear, 4 min if they are not\n"),
        ((100, 120, 140), "2 min\n"),
    ],
)
def test_an_estimate_is_one_time_where_its_bounds_look_alike(
    estimates: tuple[float, ...], text: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    study = Description(launches=10, factors=Factors(collectives=["allreduce"], pairs=False))
    study_plan = plan(study, [MPICH])
    remaining = iter(estimates)
    monkeypatch.setattr(Plan, "estimate", lambda *_: next(remaining))
    print_plan(study_plan)
    assert f"where nothing else runs about {text}" in capsys.readouterr().out
