"""What study.toml may say, and the launches that are planned from it."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from msgspec.structs import replace

import mpicoll
from mpicoll.errors import ArgumentError
from mpicoll.measurement.cases import Wanted, check_algorithms
from mpicoll.notation.contract import COLLECTIVES as CONTRACTS
from mpicoll.study import environments, installing
from mpicoll.study.asking import read_answers
from mpicoll.study.description import Description, Environment, Factors, parse
from mpicoll.study.environments import Facts, LaunchEnvironment, find
from mpicoll.study.launching import variables as launched_with
from mpicoll.study.libraries import force_algorithm, libraries, variants
from mpicoll.study.planning import plan
from mpicoll.study.running import load_study, lock_folder, store
from mpicoll.study.showing import print_plan

COLLECTIVES = [*CONTRACTS]
MPICH = LaunchEnvironment("mpich", Environment(name="mpich"), "multiple", "MPICH", "MPICH 5", True)
OMPI = LaunchEnvironment(
    "openmpi", Environment(name="openmpi", bind="cores"), "single", "Open MPI", "Open MPI 5", True
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("launches = 0", r"`int` >= 1 - at `\$.launches`"),
        ("launchs = 3", "unknown field `launchs`"),
        ("factors = { sizes = ['4X'] }", r"\$.factors.sizes: '4X' is not a size"),
        ("factors = { sizes = [] }", r"length >= 1 - at `\$.factors.sizes`"),
        ("factors = { collectives = ['allfoo'] }", r"\$.factors.collectives: .*allfoo"),
        ("factors = { transports = ['pigeon'] }", r"\$.factors.transports: 'pigeon'"),
        ("factors = { algorithms = ['none'] }", r"\$.factors.algorithms: .* algorithm 'none'"),
        ("factors = { algorithms = ['ring@pigeon'] }", r"algorithms: unknown transport 'pigeon'"),
        ("factors = { algorithms = ['auto@cma'] }", r"algorithms: .* algorithm 'auto@cma'"),
        ("factors = { algorithms = ['knomial(radix=0)'] }", r"algorithms: .*radix"),
        (
            "factors = { collectives = ['bcast'], algorithms = ['native:reduce+broadcast'] }",
            r"algorithms: .* algorithm 'native:reduce\+broadcast'",
        ),
        (
            "factors = { operators = ['sum', 'band'] }",
            "operators: op 'band' is not defined",
        ),
        ("factors = { collectives = ['scan'], operators = ['avg'] }", "operators: scan has no op"),
        *(
            (
                f"environments = [{{ name = 'x' }}, {{ name = {name!r} }}]",
                r"\[1\].name: .* is no name",
            )
            for name in ("../x", "a/b", ".", "..", "", "-n", "é", 41 * "n", "a b")
        ),
        (r'environments = [{ name = "con\n" }]', r"\$.environments\[0\].name: 'con\\n' is no name"),
        (r'environments = [{ name = "a\u001b[31m" }]', r"\$.environments\[0\].name: .* is no name"),
        ("environments = [{ name = 'x' }, { name = 'X' }]", "X differs from x in upper and lower"),
        (r'environments = [{ name = "x", launcher = "a\n" }]', r"launcher"),
        (r'environments = [{ name = "x", variables = { "A\n" = "1" } }]', r"variables"),
        (r'factors = { collectives = ["bcast\n"] }', r"collectives"),
        ("environments = [{ name = 'x', threads = ['many'] }]", r"threads"),
        ("environments = [{ name = 'x' }, { name = 'x' }]", "two are called x"),
        (r'environments = [{ name = "x", launcher = "a\u0000" }]', r"launcher"),
        (r'environments = [{ name = "x", variables = { A = "\u0000" } }]', r"variables"),
        (r'environments = [{ name = "x", variables = { "A=B" = "1" } }]', r"variables"),
        ("environments = [{ name = 'x', venv = 'a', python = 'b' }]", "give one of them"),
        ("environments = [{ name = 'x', group = 'nccl' }]", "group nccl is torch.distributed's"),
        ("seed = ", "study.toml"),
        ("minutes = nan", "minutes"),
        ("seed = " + "9" * 5000, "4300 digits"),
        ("a = " + "[" * 50_000, "recursion"),
        ("seed = 1\xff", "study.toml"),
    ],
)
def test_a_wrong_description_is_refused_by_its_key(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        parse(text.encode(), "study.toml")


@pytest.mark.parametrize(
    "factors",
    [
        "dtypes = ['float32', 'int32'], operators = ['band', 'sum']",
        "collectives = ['scan', 'allreduce'], operators = ['avg', 'sum']",
        "collectives = ['broadcast'], operators = ['band']",
    ],
)
def test_operators_may_fit_some_dtypes_and_collectives_alone(factors: str) -> None:
    parse(f"factors = {{ {factors} }}".encode(), "study.toml")


def test_an_environment_without_algorithms_of_the_library_is_no_remark() -> None:
    environment = dataclasses.replace(MPICH, settings=Environment(name="mpich", algorithms=[]))
    assert not plan(Description(), [environment]).remarks


@pytest.mark.parametrize(("launches", "lower", "upper"), [(10, 6, 15), (1, 1, 1), (20, 12, 30)])
def test_the_number_of_launches_adapts(launches: int, lower: int, upper: int) -> None:
    study = Description(launches=launches)
    assert (study.min_launches, study.max_launches) == (lower, upper)


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
    python = interpreter(tmp_path)
    program(tmp_path / "mpirun", "true")
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


def test_a_command_starts_ranks_bound_and_with_the_level() -> None:
    study = Description(factors=Factors(collectives=["bcast"], sizes=["1K", 64]))
    configuration = plan(study, [OMPI]).configurations[0]
    command = OMPI.command(2, configuration.arguments(study, 3.0, 4, "x.jsonl"))
    text = " ".join(command)
    assert "--bind-to core -n 2" in text and "--threads single" in text and "--seed 4" in text
    assert "mpicoll.bench broadcast --sizes 1024,64" in text


@pytest.mark.parametrize(
    ("group", "device", "variables"),
    [
        ("nccl", "cuda", {"NCCL_ALGO": "allreduce:tree;broadcast:ring",
                          "NCCL_PROTO": "allreduce:ll;broadcast:simple"}),
        ("ccl", "cpu", {"CCL_ALLREDUCE": "ring", "CCL_BCAST": "double_tree"}),
    ],
)  # fmt: skip
def test_torch_s_library_is_forced_for_a_launch(
    group: str, device: str, variables: dict[str, str]
) -> None:
    names = {
        "nccl": ["allreduce=tree_ll", "bcast=ring_simple"],
        "ccl": ["allreduce=ring", "bcast=double_tree"],
    }[group]
    fields = f"name = 'gpu', backends = ['torch'], group = '{group}', algorithms = {names}"
    text = f"environments = [{{ {fields} }}]"
    study = parse(text.encode(), "study.toml")
    environment = LaunchEnvironment(
        "gpu", study.environments[0], "multiple", "MPICH", "MPICH 5", True
    )
    choice, forced = plan(study, [environment]).configurations
    arguments = " ".join(forced.arguments(study, 3.0, 0, "x.jsonl"))
    assert "--backends torch" in arguments and f"--device {device}" in arguments
    assert "mpicoll.bench allreduce broadcast --sizes" in arguments
    assert not choice.forced and choice.backends == ("torch",)
    launch_variables = launched_with(forced)
    assert (
        variables.items() <= launch_variables.items()
        and launch_variables["TORCHCOLL_BACKEND"] == group
    )


def test_intel_mpi_of_a_wheel_finds_its_tables(tmp_path: Path) -> None:
    (tmp_path / "opt" / "mpi" / "etc").mkdir(parents=True)
    settings = Environment(name="intel", venv=str(tmp_path))
    variables = LaunchEnvironment("intel", settings, "multiple", "Intel MPI", "", False).variables()
    assert variables["I_MPI_ROOT"] == str(tmp_path)
    mpich_variables = LaunchEnvironment(
        "mpich", settings, "multiple", "MPICH", "", False
    ).variables()
    assert "I_MPI_ROOT" not in mpich_variables


def test_modules_are_loaded_before() -> None:
    settings = Environment(name="x", modules=["gcc", "mpich/5 x"], launcher="srun-pmi2")
    command = LaunchEnvironment("x", settings, "multiple", "MPICH", "", False).command(4, ["-V"])
    assert command[:3] == ["bash", "-lc", 'module load gcc \'mpich/5 x\' && exec "$0" "$@"']
    assert command[3:7] == ["srun", "--ntasks=4", "--mpi=pmi2", "--cpu-bind=none"]


@pytest.mark.parametrize("vendor", list(libraries()))
def test_every_library_has_a_variable_for_each_algorithm(vendor: str) -> None:
    for name, rules in libraries()[vendor].collectives.items():
        for rule in rules:
            for algorithm in rule.names:
                value = str(rule.values.get(algorithm, algorithm.removeprefix("preset_")))
                texts = ";".join(force_algorithm(vendor, name, algorithm).variables.values())
                assert "{" not in texts
                assert all(part in texts for part in value.split("_"))
        names = [algorithm_name for rule in rules for algorithm_name in rule.names]
        assert len(names) == len(set(names))


def test_on_several_nodes_a_forced_algorithm_is_not_left_to_han() -> None:
    """A name of HAN's has no counterpart here, so that only who asks for it gets it."""
    module = "OMPI_MCA_coll_han_bcast_dynamic_global_communicator_module"
    assert force_algorithm("Open MPI", "broadcast", "binomial").variables[module] == "3"
    assert force_algorithm("Open MPI", "broadcast", "han_intra").variables[module] == "6"
    counterparts, every = (
        variants("Open MPI", ["broadcast"], [choice]) for choice in ("all", "every")
    )
    assert not any(
        how.algorithm.startswith("han_") for variant in counterparts for how in variant.values()
    )
    assert "han_intra" in [how.algorithm for variant in every for how in variant.values()]


@pytest.mark.parametrize(
    ("names", "message"),
    [(["ring"], "names no algorithm"), (["allreduce=x"], "no algorithm 'x'"), (["scan=x"], "scan")],
)
def test_an_unknown_algorithm_of_a_library_is_refused(names: list[str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        variants("MPICH", ["allreduce", "scan"], names)


def test_what_the_library_says_is_heard_by_collective_and_size() -> None:
    forcing = {"allreduce": force_algorithm("MPICH", "allreduce", "ring")}
    text = (
        "Allreduce ring cannot be applied.\n\nmpicoll asks: allreduce 4\n"
        "Allreduce ring cannot be applied.\n\nmpicoll asks: allreduce 64\n"
        "Bcast x cannot be applied.\n"
    )
    answer = read_answers("MPICH", forcing, text)["allreduce"]
    assert answer.obeyed and answer.refused == [4] and answer.said.startswith("Allreduce ring")
    assert read_answers("MPICH", forcing, None)["allreduce"].obeyed is None
    first = text.partition("\n\nmpicoll asks: allreduce 64")[0]
    assert read_answers("MPICH", forcing, first)["allreduce"].obeyed is False
    # Ranks print at the same time, and a file may be damaged.
    for between in (
        "mpicoll asks: ",
        "mpicoll asks: allreduce 4a\n",
        "mpicoll asks: x " + "9" * 5000,
    ):
        assert read_answers("MPICH", forcing, between + text)["allreduce"] == answer


def test_intel_mpi_says_as_it_starts_that_it_has_no_such_number() -> None:
    """Of the others it does not say whether it ran them."""
    forcing = {
        name: force_algorithm("Intel MPI", name, "binomial") for name in ("broadcast", "reduce")
    }
    text = (
        "[0] MPI startup(): Incorrect algorithm: BCAST=1, will be ignored\n"
        "mpicoll asks: broadcast 4\n\nmpicoll asks: reduce 4\n"
    )
    answers = read_answers("Intel MPI", forcing, text)
    assert answers["broadcast"].obeyed is False and answers["reduce"].obeyed is None


def test_nccl_says_what_it_ran() -> None:
    forcing = {
        "allreduce": force_algorithm("NCCL", "allreduce", "nvlstree_simple"),
        "reduce_scatter": force_algorithm("NCCL", "reduce_scatter", "ring_ll"),
        "allgather": force_algorithm("NCCL", "allgather", "ring_ll"),
    }
    line = "\nNCCL INFO {}: 4096 Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{0..1}}\n"
    text = (
        "mpicoll asks: allreduce 4096" + line.format("AllReduce", "NVLS_TREE", "SIMPLE")
        + "mpicoll asks: reduce_scatter 64" + line.format("ReduceScatter", "RING", "LL")
        + "mpicoll asks: reduce_scatter 4096" + line.format("ReduceScatter", "RING", "SIMPLE")
        + "mpicoll asks: allgather 64\n"
    )  # fmt: skip
    answers = read_answers("NCCL", forcing, text)
    assert answers["allreduce"].obeyed and not answers["allreduce"].refused
    assert answers["reduce_scatter"].refused == [4096]
    assert answers["reduce_scatter"].said == "ring_simple"
    assert answers["allgather"].obeyed is None


def test_open_mpi_says_where_han_runs() -> None:
    forcing = {
        "allreduce": force_algorithm("Open MPI", "allreduce", "han_simple"),
        "broadcast": force_algorithm("Open MPI", "broadcast", "binomial"),
        "gather": force_algorithm("Open MPI", "gather", "binomial"),
        "reduce": force_algorithm("Open MPI", "reduce", "han_intra"),
    }
    line = "\n[host0:7] coll:han:get_algorithm {} size:4 algorithm:2 {}\n"
    text = (
        "mpicoll asks: allreduce 4" + line.format("allreduce", "simple")
        + "mpicoll asks: broadcast 4" + line.format("bcast", "default")
        + "mpicoll asks: gather 4\nmpicoll asks: reduce 4\n"
    )  # fmt: skip
    answers = read_answers("Open MPI", forcing, text)
    assert {name: answer.obeyed for name, answer in answers.items()} == {
        "allreduce": True, "broadcast": False, "gather": None, "reduce": False,
    }  # fmt: skip


def test_a_folder_keeps_one_study(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with lock_folder(folder):
        store(Description(seed=3), folder)
        store(Description(seed=3), folder)
        assert load_study(folder) == Description(seed=3)
        with pytest.raises(ArgumentError, match="has another study"):
            store(Description(seed=4), folder)


def test_a_study_that_has_begun_takes_more_minutes(tmp_path: Path) -> None:
    store(Description(seed=3, minutes=1.0), tmp_path)
    store(Description(seed=3, minutes=20.0), tmp_path)
    assert load_study(tmp_path) == Description(seed=3, minutes=20.0)


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, '{"factors": {"sizes": ["4X"]}}', '{"seed": 9' + "9" * 5000 + "}"]
)
def test_a_damaged_study_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(ArgumentError, match=r"study.json: .*: remove it"):
        load_study(tmp_path)


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
    "printed", ["", "3", "{}", "null", "\\0377", "[" * 5000, '{"vendor": 1}', '{"mpicoll": true}']
)
def test_what_an_interpreter_prints_is_not_trusted(printed: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nprintf '%b\\n' '{printed}'\n")
    python.chmod(0o755)
    with pytest.raises(ArgumentError, match="finds no MPI"):
        environments.probe(Environment(name="x", python=str(python)))


def test_an_interpreter_that_is_not_there_is_said_in_words(tmp_path: Path) -> None:
    missing = Environment(name="x", venv=str(tmp_path))
    with pytest.raises(ArgumentError) as caught:
        environments.probe(missing)
    assert str(caught.value) == f"{tmp_path}/bin/python does not start: No such file or directory"


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def interpreter(folder: Path, vendor: str = "MPICH") -> Path:
    """Return one that counts its starts in a file beside it, and says that it has an MPI."""
    facts = Facts(vendor, f"{vendor} 5", mpicoll=True, torch=False)
    answer = msgspec.json.encode(facts).decode()
    return program(folder / "python", f"echo >> {folder / 'starts'}\necho '{answer}'")


def test_an_interpreter_is_asked_once(tmp_path: Path) -> None:
    """By what a study finds and by its plan, at every thread level; with other variables anew."""
    python, starts = interpreter(tmp_path), tmp_path / "starts"
    program(tmp_path / "mpirun", "true")
    levels = [
        Environment(name=level, python=str(python), threads=[level])
        for level in ("single", "multiple")
    ]
    find(Description(environments=environments.launchable_environments(levels)))
    assert len(starts.read_text()) == 1
    environments.probe(replace(levels[0], variables={"A": "1"}))
    assert len(starts.read_text()) == 2


OPEN_MPI = "echo 'mpirun (Open MPI) 5.0.11'"
HYDRA = "echo 'HYDRA build details:'"


@pytest.mark.parametrize(
    ("launcher", "vendor", "programs", "message"),
    [
        ("auto", "MPICH", {}, "no mpirun is beside {bin}/python or on PATH: name its launcher"),
        ("mpirun", "MPICH", {}, "no mpirun is beside {bin}/python or on PATH: name its launcher"),
        ("{bin}/mpirun", "MPICH", {}, "there is no program {bin}/mpirun"),
        ("{bin}", "MPICH", {}, "its launcher {bin}: there is no program {bin}"),
        ("{bin}/starts", "MPICH", {}, "there is no program {bin}/starts"),
        ("srun-pmi2", "MPICH", {}, "its launcher srun-pmi2: there is no program srun"),
        ("srun-pmi2", "MPICH", {"srun": "echo none pmix >&2"}, "srun --mpi=list has no pmi2"),
        ("auto", "MPICH", {"mpirun": OPEN_MPI},
         "its launcher {bin}/mpirun is Open MPI's, but {bin}/python has MPICH"),
        ("~/mpirun", "Open MPI", {"mpirun": HYDRA}, "is MPICH's, but {bin}/python has Open MPI"),
        ("auto", "MPICH", {"mpirun": HYDRA}, None),
        ("auto", "Intel MPI", {"mpirun": HYDRA}, None),
        ("~/mpirun", "Open MPI", {"mpirun": OPEN_MPI}, None),
        ("srun-pmi2", "MPICH", {"srun": "echo none pmi2 >&2"}, None),
        ("srun-pmi2", "MPICH", {"srun": "echo 'srun: fatal: no Slurm' >&2; exit 1"},
         "its launcher srun-pmi2: srun: fatal: no Slurm"),
        ("{bin}/mine", "MPICH", {"mine": "test $4 = 2"}, None),
        ("{bin}/mine", "MPICH", {"mine": "echo 'too few slots'; exit 1"},
         "its launcher does not start 2 ranks: too few slots"),
        ("auto", "Open MPI", {"mpirun": f"{OPEN_MPI}; echo add --allow-run-as-root; test $# = 1"},
         "does not start 2 ranks: Open MPI's launcher refuses to run as root: set OMPI_ALLOW"),
    ],
)  # fmt: skip
def test_a_launcher_that_starts_no_rank_is_said_when_a_study_is_planned(
    launcher: str, vendor: str, programs: dict[str, str], message: str | None,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    python = interpreter(tmp_path, vendor)
    for name, text in programs.items():
        program(tmp_path / name, text)
    for name in ("bash", "sh"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    settings = Environment(
        name="x", python=str(python), launcher=launcher.replace("{bin}", str(tmp_path))
    )
    study = Description(environments=[settings])
    if message is None:
        assert [environment.vendor for environment in find(study)[0]] == [vendor]
        return
    with pytest.raises(ArgumentError) as caught:
        find(study)
    assert str(caught.value).startswith("environment x is left out: ")
    assert message.replace("{bin}", str(tmp_path)) in str(caught.value)


MODULE = """
module() {
    test "$2" = mpich || {
        echo "Lmod has detected the following error: $2 is unknown" >&2
        return 1
    }
    PATH=%s:$PATH
}
"""


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["mpich"], None),
        (["mpic"], "module load mpic fails: Lmod has detected the following error: mpic is unk"),
        ([], "no mpirun is beside"),
    ],
)
def test_modules_that_do_not_load_are_said_and_bring_a_launcher(
    names: list[str], message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loaded").mkdir()
    program(tmp_path / "loaded" / "mpirun", HYDRA)
    (tmp_path / ".bash_profile").write_text(MODULE % (tmp_path / "loaded"))
    path = os.environ["PATH"].split(":")
    without = [entry for entry in path if not (Path(entry) / "mpirun").exists()]
    monkeypatch.setenv("PATH", ":".join(without))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    settings = Environment(name="x", python=str(interpreter(tmp_path)), modules=names)
    if message is None:
        assert len(find(Description(environments=[settings]))[0]) == 1
        return
    with pytest.raises(ArgumentError, match=message):
        find(Description(environments=[settings]))


def test_half_an_installed_environment_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SIGKILL leaves it in the middle of an installation."""
    monkeypatch.setattr(environments, "INSTALLED", tmp_path)
    for name in ("half", "whole"):
        site = tmp_path / name / "lib" / "python3.12" / "site-packages"
        site.mkdir(parents=True)
        (tmp_path / name / "bin").mkdir()
        (tmp_path / name / "bin" / "python").touch()
    (site / environments.LEADS).touch()
    venvs = [environment.venv for environment in environments.candidates() if environment.venv]
    assert venvs == [str(tmp_path / "whole")]


def test_an_installation_that_fails_says_how_much_room_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What venv says of a full disk does not name it."""
    monkeypatch.setattr("sys.executable", str(tmp_path / "no-python"))
    with pytest.raises(ArgumentError, match=r"does not start: .*; [\d.,]+[KMGT]? are free there$"):
        installing.install("mpich", tmp_path)
    assert list(tmp_path.iterdir()) == []
