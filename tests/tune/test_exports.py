"""Tables for libraries: what is chosen from records, how it is written, and that MPICH takes it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from launcher import QUIRKS, ranks

from mpicoll.errors import ArgumentError
from mpicoll.records.description import Run
from mpicoll.records.lines import CaseRecord, Forced, LaunchRecord, Record, Times
from mpicoll.records.reading import encoded
from mpicoll.study.description import Description
from mpicoll.study.environments import NAMES
from mpicoll.study.libraries import algorithms_of, force_algorithm
from mpicoll.study.running import store
from mpicoll.tune.exports import mpich, openmpi, settings
from mpicoll.tune.exports.choices import Choice, Range, Takes, choices, measurements
from mpicoll.tune.exports.command import main
from mpicoll.tune.exports.measuring import folder_of


def table_of(
    records: Sequence[Record], library: str, takes: Takes, environment: str | None = None,
    says_own: bool = True,
) -> list[Choice]:  # fmt: skip
    return choices(measurements(records, library, takes, environment), says_own=says_own)


LIBRARY_CHOICE = Range(1000, None, {})
BASE = {
    "collective=allreduce": {"comm_type=intra": {"algorithm=MPIR_Allreduce_intra_smp": {}}},
    "collective=alltoall": {"comm_type=intra": {"algorithm=MPIR_Alltoall_intra_brucks": {}}},
}


def case(run: str, algorithm: str, nbytes: int, us: float, **more: object) -> CaseRecord:
    library_fields: dict[str, object] = {
        "library": "MPICH Version: 5.0.2",
        "environment": "mpich",
    } | more
    return CaseRecord(
        run=Run(id=run), collective="allreduce", algorithm=algorithm, backend="mpi4py",
        dtype="float32", op="sum", root=None, in_place=False, ranks=4, bytes_total=nbytes,
        time_us=Times(us, us, us), correct=True, **library_fields,
    )  # fmt: skip


def launch(run: str, algorithm: str, **more: object) -> LaunchRecord:
    forced = {"allreduce": Forced(algorithm, None, {"I_MPI_ADJUST_ALLREDUCE": "8"}, **more)}
    return LaunchRecord(
        configuration="c", launch=0, run=run, environment="mpich", ranks=4, forced=forced
    )


def study() -> list[Record]:
    """Return launches in which ring wins 10 times as slow a native from 4 KiB on."""
    records: list[Record] = []
    for number, factor in enumerate((1.0, 1.1, 0.9, 1.05)):
        native_run, forced = f"own{number}", f"ring{number}"
        records.append(launch(forced, "ring"))
        for nbytes, native, ring in ((64, 2.0, 1.99), (4096, 100.0, 10.0), (65536, 200.0, 20.0)):
            records.append(case(native_run, "native", nbytes, native * factor))
            records.append(case(forced, "native(algorithm=ring)", nbytes, ring * factor))
    return records


# -- the choice ---------------------------------------------------------------------------


def test_what_is_faster_by_more_than_three_per_cent_is_taken() -> None:
    (choice,) = table_of(study(), "MPICH", mpich.takes)
    assert choice[:3] == ("allreduce", 4, 1)
    assert [part[:2] for part in choice.ranges] == [(4095, None), (None, "ring")]


def test_between_sizes_the_library_s_choice_stays_and_algorithms_change_half_way() -> None:
    records = study()
    for number in range(4):
        forced, native_run = f"doubling{number}", f"own{number}"
        records.append(launch(forced, "recursive_doubling"))
        for nbytes, us in ((4096, 30.0), (65536, 10.0)):
            records.append(case(forced, "native(algorithm=recursive_doubling)", nbytes, us))
        records.append(case(native_run, "native", 1 << 20, 1.0))
    (choice,) = table_of(records, "MPICH", mpich.takes)
    assert [part[:2] for part in choice.ranges] == [
        (4095, None), (16384, "ring"), (65536, "recursive_doubling"), (None, None)
    ]  # fmt: skip


def test_what_one_launch_contradicts_is_not_taken() -> None:
    """Ring's launches beside the native's: faster in the median, but not surely."""
    slow = [case("slow", "native(algorithm=ring)", nbytes, 1e3) for nbytes in (4096, 65536)]
    assert table_of([*study(), launch("slow", "ring"), *slow], "MPICH", mpich.takes) == []


def test_what_few_launches_say_is_not_taken() -> None:
    """Three of each are in the extreme order by chance one time in ten."""
    records = [record for record in study() if "3" not in getattr(record.run, "id", record.run)]
    assert table_of(records, "MPICH", mpich.takes) == []


@pytest.mark.parametrize("target", ["ucc", "nccl"])
def test_a_library_below_the_environment_s_is_named(target: str, tmp_path: Path) -> None:
    """Where several environments were measured, and none of them forced it."""
    path = tmp_path / "records.jsonl"
    records = [*study(), case("x", "native", 64, 1.0, environment="openmpi")]
    path.write_text("".join(f"{encoded(record)}\n" for record in records))
    result = CliRunner().invoke(main, [str(path), "--to", target, "-o", str(tmp_path / "table")])
    assert result.exit_code == 2
    assert f"no native calls of {target.upper()} were measured" in result.output


def test_a_library_that_cannot_be_left_the_choice_gets_all_sizes_or_none() -> None:
    (choice,) = table_of(study(), "MPICH", mpich.takes, says_own=False)
    assert [part[:2] for part in choice.ranges] == [(None, "ring")]
    # At one size it is slower in three launches of four: not surely, but likely.
    ring = "native(algorithm=ring)"
    likely = [case(f"ring{n}", ring, 16, us) for n, us in enumerate((9, 2, 3, 9))]
    likely += [case(f"own{n}", "native", 16, us) for n, us in enumerate((2, 1, 4, 2))]
    assert table_of([*study(), *likely], "MPICH", mpich.takes, says_own=False) == []
    slow = [case(f"ring{n}", "native(algorithm=ring)", 16, 1e6) for n in range(4)]
    slow += [case(f"own{n}", "native", 16, 1.0) for n in range(4)]
    assert table_of([*study(), *slow], "MPICH", mpich.takes, says_own=False) == []


def relaunch_study(**more: object) -> list[Record]:
    """Return the study with launches in which the library said more."""
    return [
        launch(record.run, "ring", **more)
        if isinstance(record, LaunchRecord) and record.run
        else record
        for record in study()
    ]


def test_an_algorithm_that_did_not_run_is_not_taken() -> None:
    with pytest.raises(ArgumentError, match="no launch forced an algorithm of MPICH"):
        table_of(relaunch_study(obeyed=False), "MPICH", mpich.takes)


def test_nor_is_one_at_sizes_that_the_library_refused() -> None:
    assert table_of(relaunch_study(refused=[4096, 65536]), "MPICH", mpich.takes) == []


def test_several_environments_need_one_to_be_named() -> None:
    records = [*study(), case("x", "native", 64, 1.0, environment="mpich-single")]
    with pytest.raises(ArgumentError, match="choose one of mpich, mpich-single"):
        table_of(records, "MPICH", mpich.takes)
    assert table_of(records, "MPICH", mpich.takes, "mpich")


def test_the_library_s_own_choice_must_have_been_measured() -> None:
    records = [record for record in study() if getattr(record, "algorithm", "") != "native"]
    with pytest.raises(ArgumentError, match="MPICH's own choice was not measured"):
        table_of(records, "MPICH", mpich.takes)


def test_another_library_has_no_records() -> None:
    with pytest.raises(ArgumentError, match="no native calls of Open MPI were measured"):
        table_of(study(), "Open MPI", openmpi.takes)


# -- the formats --------------------------------------------------------------------------


def make_choices(algorithm: str, of: str = "allreduce", **variables: str) -> list[Choice]:
    return [Choice(of, 4, 1, [LIBRARY_CHOICE, Range(None, algorithm, variables)])]


HOSTILE = ["'; touch owned; '", "$(touch owned)", "a\nb", "", "8'", "8 9", "a,b"]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_record_gets_into_a_file_that_a_shell_reads(text: str) -> None:
    good = {"I_MPI_ADJUST_ALLREDUCE": "8"}
    assert settings.intel_takes("allreduce", "ring", good)
    assert not settings.intel_takes("allreduce", "ring", {"I_MPI_ADJUST_ALLREDUCE": text})
    assert not settings.intel_takes("allreduce", "ring", {**good, f"I_MPI_ADJUST_{text}=": "8"})
    assert not settings.ucc_takes("allreduce", text, {"UCC_TL_UCP_TUNE": "x"})
    assert not settings.nccl_takes("allreduce", "ring", {"NCCL_ALGO": text, "NCCL_PROTO": "LL"})


@pytest.mark.parametrize("tree", ["[1]", "3", "[" * 100_000, "{}"])
def test_a_library_with_another_tree_is_refused(tree: str, tmp_path: Path) -> None:
    path = tmp_path / "libmpi.so"
    text = '{"collective=allreduce": TREE, "algorithm=MPIR_Allreduce_intra_x": 1}'
    path.write_text(text.replace("TREE", tree))
    with pytest.raises(ArgumentError, match="has no"):
        mpich.tree(make_choices("ring"), mpich.built_in(path))


def test_mpich_keeps_its_tree_for_other_ranks_sizes_and_operators() -> None:
    tree = json.loads(mpich.tree(make_choices("ring"), BASE))
    default = BASE["collective=allreduce"]["comm_type=intra"]
    sizes = tree["collective=allreduce"]["comm_type=intra"]
    assert [*sizes] == ["comm_size<=3", "comm_size<=4", "comm_size=any"]
    assert sizes["comm_size<=3"] == sizes["comm_size=any"] == default
    assert sizes["comm_size<=4"] == {
        "is_commutative=yes": {
            "avg_msg_size<=1000": default,
            "avg_msg_size=any": {"algorithm=MPIR_Allreduce_intra_ring": {}},
        },
        "is_commutative=no": default,
    }
    assert tree["collective=alltoall"] == BASE["collective=alltoall"]


DEVICE = {"collective=allreduce": {"comm_type=intra": {"composition=X": {}}}, "collective=scan": {}}
FLAGS = {"collective=allreduce": {"comm_type=intra": {"is_multi_threaded=no": {"algorithm=X": {}}}}}
LAYERS = {mpich.CH4: DEVICE, mpich.POSIX: FLAGS}


def branch(text: str, ranks: int) -> dict[str, object]:
    """Return what stands for allreduces of the larger size on so many ranks."""
    sizes = json.loads(text)["collective=allreduce"]["comm_type=intra"]
    assert [*sizes] == [f"comm_size<={ranks - 1}", f"comm_size<={ranks}", "comm_size=any"]
    ranges: dict[str, dict[str, object]] = sizes[f"comm_size<={ranks}"]["is_commutative=yes"]
    return ranges["avg_msg_size=any"]


def test_the_device_of_mpich_has_a_gap_where_an_algorithm_was_chosen() -> None:
    """There MPIR decides for the same ranks, by its own tree."""
    (text,) = mpich.layers(make_choices("ring"), LAYERS).values()
    default = DEVICE["collective=allreduce"]["comm_type=intra"]
    assert branch(text, 4) == {"comm_type=inter": default}
    assert json.loads(text)["collective=allreduce"]["comm_type=intra"]["comm_size=any"] == default
    assert json.loads(text)["collective=scan"] == {}


def test_mpich_takes_a_composition_from_the_tree_of_its_device() -> None:
    (text,) = mpich.layers(make_choices("composition_beta"), LAYERS).values()
    assert branch(text, 4) == {"composition=MPIDI_Allreduce_intra_composition_beta": {}}
    default = BASE["collective=allreduce"]["comm_type=intra"]
    assert branch(mpich.tree(make_choices("composition_beta"), BASE), 4) == default


@pytest.mark.parametrize(
    ("algorithm", "leaf"),
    [
        ("mpir", {"algorithm=MPIR_Allreduce_impl": {}}),
        ("release_gather", {"is_multi_threaded=no": {
            "algorithm=MPIDI_POSIX_mpi_allreduce_release_gather": {}}}),
    ],
)  # fmt: skip
def test_mpich_chooses_within_a_node_by_its_ranks(algorithm: str, leaf: dict[str, object]) -> None:
    (choice,) = make_choices(algorithm)
    texts = mpich.layers([choice._replace(nodes=2)], LAYERS)
    assert branch(texts[mpich.POSIX], 2) == leaf
    assert branch(texts[mpich.CH4], 4) == DEVICE["collective=allreduce"]["comm_type=intra"]


def test_mpich_without_a_tree_of_its_device_leaves_the_device_out() -> None:
    variables = mpich.variables(make_choices("ring"), {mpich.MPIR: Path("a")})
    assert variables["MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE"] == "0"
    variables = mpich.variables(make_choices("ring"), {mpich.MPIR: Path("a"), mpich.CH4: Path("b")})
    assert sorted(variables) == [
        "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE",
        "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE",
    ]


def test_mpich_counts_the_bytes_of_a_row_in_alltoall() -> None:
    tree = json.loads(mpich.tree(make_choices("pairwise", "alltoall"), BASE))
    assert "avg_msg_size<=250" in str(tree)


def test_mpich_needs_enough_elements_for_rabenseifner() -> None:
    tree = json.loads(mpich.tree(make_choices("reduce_scatter_allgather"), BASE))
    assert "count<pow2" in str(tree)


def test_a_file_without_a_tree_is_refused(tmp_path: Path) -> None:
    (tmp_path / "libmpi.so").write_bytes(b'\x7fELF{"collective=bcast":{}}\0')
    with pytest.raises(ArgumentError, match="has no tree of algorithms"):
        mpich.built_in(tmp_path / "libmpi.so")


def test_open_mpi_decides_itself_for_other_ranks() -> None:
    numbers = [
        line.split("#")[0].split() for line in openmpi.rules(make_choices("ring")).splitlines()
    ]
    assert [" ".join(words) for words in numbers] == [
        "1", "2", "3",
        "0", "1", "0 0 0 0",
        "4", "2", "0 0 0 0", "1001 4 0 0",
        "5", "1", "0 0 0 0",
    ]  # fmt: skip


def test_open_mpi_is_told_of_requests_in_version_2() -> None:
    requests = {"OMPI_MCA_coll_tuned_alltoall_algorithm_max_requests": "2"}
    decisions = make_choices("linear_sync_2", "alltoall", **requests)
    lines = openmpi.rules(decisions).splitlines()
    assert lines[0] == "rule-file-version-2"
    assert "0 0 0 0 # its own choice" in lines and "1001 4 0 0 2 # linear_sync_2" in lines
    assert '"alg": 4,' in openmpi.json_rules(decisions) and '"reqs": 2' in openmpi.json_rules(
        decisions
    )
    assert openmpi.takes("alltoall", "linear_sync_2", requests)
    assert not openmpi.takes("alltoall", "linear_sync_2", {next(iter(requests)): "2 # x"})


def test_open_mpi_is_told_the_fan_of_a_chain_and_the_radix_of_bruck() -> None:
    """A fan of 0 is 1, and the variables that force a chain leave it at 4; a radix of 0 hangs."""
    chain = make_choices("chain", "reduce")
    assert "1001 2 4 0 # chain" in openmpi.rules(chain).splitlines()
    assert '"faninout": 4' in openmpi.json_rules(chain)
    bruck = make_choices("bruck", "allgather")
    assert "1001 2 0 0 # bruck" in openmpi.rules(bruck).splitlines()
    assert '"faninout": 2' in openmpi.json_rules(bruck)


def test_open_mpi_6_gets_json() -> None:
    document = json.loads(openmpi.json_rules(make_choices("binomial", "broadcast")))
    (rule,) = document["collectives"]["bcast"]
    assert (rule["comm_size_min"], rule["comm_size_max"]) == (4, 4)
    assert rule["rules"] == [{"msg_size_min": 1001, "msg_size_max": "inf", "alg": 6}]


@pytest.mark.parametrize(
    ("write", "variables", "text"),
    [
        (settings.intel, {"I_MPI_ADJUST_ALLREDUCE": "8"},
         "export I_MPI_ADJUST_ALLREDUCE='8:0-2147483647'\n"),
        (settings.ucc, {"UCC_TL_UCP_TUNE": ""},
         "export UCC_TL_UCP_TUNE='allreduce:1001-inf:[4-4]:inf:@ring'\n"),
        (settings.nccl, {"NCCL_ALGO": "allreduce:ring", "NCCL_PROTO": "allreduce:ll"},
         "allreduce,1001,4611686018427387904,ring,ll,-1,1,4,-1,-1\n"),
    ],
)  # fmt: skip
def test_other_libraries_are_told_in_a_line(write, variables: dict[str, str], text: str) -> None:
    ranges = [Range(None, "ring", variables)]
    parts = [LIBRARY_CHOICE, *ranges] if write is not settings.intel else ranges
    assert write([Choice("allreduce", 4, 1, parts)]) == text


def test_nccl_s_plugin_has_names_of_its_own() -> None:
    """An unknown one would be taken for ring, without a word."""
    text = settings.nccl(make_choices("x", NCCL_ALGO="CollNetDirect", NCCL_PROTO="Simple"))
    assert text.split(",")[3:5] == ["collnet_direct", "simple"]
    variables = {"NCCL_ALGO": "^Ring", "NCCL_PROTO": "LL"}
    assert not settings.nccl_takes("allreduce", "x", variables)
    assert not settings.nccl_takes("allreduce", "x", {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL64"})


def test_ucc_counts_what_a_rank_has_of_a_reduce_scatter() -> None:
    ranges = [LIBRARY_CHOICE, Range(4000, "knomial", {}), Range(None, "ring", {})]
    text = settings.ucc([Choice("reduce_scatter", 4, 1, ranges)])
    assert "reduce_scatter:251-1000:[4-4]:inf:@knomial" in text
    assert "reduce_scatter:1001-inf:[4-4]:inf:@ring" in text


def test_intel_mpi_has_one_table_for_all_numbers_of_ranks() -> None:
    (choice,) = make_choices("ring", I_MPI_ADJUST_ALLREDUCE="8")
    with pytest.raises(ArgumentError, match="give records of one of 4, 8"):
        settings.intel([choice, choice._replace(ranks=8)])


def test_han_hands_on_what_was_chosen_on_several_nodes() -> None:
    (choice,) = make_choices("binomial", "broadcast")
    assert openmpi.han_rules([choice]) is None
    ranges = [LIBRARY_CHOICE, Range(2000, "ring", {}), Range(None, "han_simple", {})]
    wide = Choice("allgather", 4, 2, ranges)
    lines = str(openmpi.han_rules([choice, wide])).splitlines()
    assert [line.split("#")[0].strip() for line in lines] == [
        "1", "allgather", "1", "global_communicator", "3",
        "1", "1", "0 han",
        "4", "3", "0 han", "251 tuned", "501 han @simple",
        "5", "1", "0 han",
    ]  # fmt: skip
    # Of coll_tuned HAN's algorithms are its own choice.
    assert "2001 0 0 0 # han_simple" in openmpi.rules([wide])
    assert openmpi.takes("allgather", "han_simple", {})
    assert not openmpi.takes("alltoall", "han_simple", {})
    variables = openmpi.variables({"": Path("a"), openmpi.HAN_RULES: Path("b")})
    assert variables["OMPI_MCA_coll_han_use_dynamic_file_rules"] == "1"


# -- the command --------------------------------------------------------------------------


def command(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main([*words])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out + printed.err


def save_records(folder: Path, records: Sequence[Record]) -> str:
    path = folder / "study.jsonl"
    path.write_text("".join(f"{encoded(record)}\n" for record in records))
    return str(path)


def test_the_command_writes_the_table_and_says_what_to_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = tmp_path / "libmpi.so"
    trees = BASE, {"collective=allreduce": {"comm_type=intra": {"composition=MPIDI_x": {}}}}
    library.write_bytes(b"\x7fELF\0" + b"\0more\0".join(json.dumps(t).encode() for t in trees))
    table = tmp_path / "table.json"
    files = ["--to", "mpich", "-o", str(table), "--library", str(library)]
    code, text = command(save_records(tmp_path, study()), *files, capsys=capsys)
    assert code == 0, text
    assert "allreduce, 4 ranks: its own choice to 4095 B, ring" in text
    assert f"export MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE={table}" in text
    assert (
        f"export MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE={table.with_suffix('.ch4.json')}"
        in text
    )
    assert "MPIR_Allreduce_intra_ring" in table.read_text()
    assert "comm_type=inter" in table.with_suffix(".ch4.json").read_text()


def test_records_without_an_answer_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.json"
    records = [case("x", "native", 64, 1.0)]
    code, text = command(
        save_records(tmp_path, records), "--to", "mpich", "-o", str(table), capsys=capsys
    )
    assert code == 2
    assert "no launch forced an algorithm of MPICH" in text
    assert not table.exists()


def of_launches(count: int, ring: Sequence[float] = (9.0,)) -> list[Record]:
    """Return so many launches of the library's choice, of 10 us, and of ring."""
    records: list[Record] = []
    for number in range(count):
        native_run, forced = f"own{number}", f"ring{number}"
        records += [launch(forced, "ring"), case(native_run, "native", 64, 10.0 + number / 100)]
        records.append(case(forced, "native(algorithm=ring)", 64, ring[number % len(ring)]))
    return records


@pytest.mark.parametrize(
    ("count", "ring", "message", "launches"),
    [
        (3, (9.0,), "ring 1.11 times as fast [(]3 launches; 4 are needed[)]", 4),
        (6, (9.0, 10.5, 8.9), "ring 1.11 times as fast, 0.95.* to 1.1.* [(]6 launches[)]", 20),
    ],
)
@pytest.mark.parametrize("limit", [None, 3.0])
def test_a_table_that_is_not_written_says_how_many_launches_are_lacking(
    count: int, ring: Sequence[float], message: str, launches: int, limit: float | None,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """And the command that makes them, in the folder of the study."""
    folder = tmp_path / "made"
    (folder / "launches").mkdir(parents=True)
    store(Description(minutes=limit), folder)
    records = save_records(folder / "launches", of_launches(count, ring))
    table = tmp_path / "table.json"
    code, text = command(records, "--to", "mpich", "-o", str(table), capsys=capsys)
    assert code == 2 and not table.exists()
    assert "no algorithm is surely faster than its own choice, so no table is written" in text
    assert re.search(f"allreduce of 64 B on 4 ranks: {message}", " ".join(text.split()))
    order = f"python -m mpicoll.study -o {folder} --launches {launches}"
    assert order + (" --minutes " if limit else "") in text.replace("\n", " ")
    assert Description(launches=launches).min_launches >= (4 if count < 4 else 2 * count)


def test_records_of_no_folder_name_what_to_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = save_records(tmp_path, of_launches(3))
    _, text = command(records, "--to", "mpich", "-o", str(tmp_path / "t.json"), capsys=capsys)
    assert "set launches = 4 in the study.toml of these records" in text


def test_where_nothing_may_be_faster_no_launch_is_lacking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = save_records(tmp_path, of_launches(4, (10.0,)))
    code, text = command(records, "--to", "mpich", "-o", str(tmp_path / "t.json"), capsys=capsys)
    assert code == 2 and text.rstrip().endswith("so no table is written")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("a.jsonl", "--to", "mpich", "--ranks", "4"),
            "--ranks is of the study that is made",
        ),
        (("--to", "ucc"), "--to ucc takes RECORDS"),
        (("--to", "mpich", "--launches", "3"), "from 4 to 1,000"),
        (("--to", "mpich", "--collectives", "scan"), "a table of MPICH names no algorithm of scan"),
        (
            ("--to", "intel", "--collectives", "alltoall"),
            "Intel MPI names no algorithm of alltoall",
        ),
    ],
)
def test_what_no_study_can_be_made_of_is_refused(
    arguments: Sequence[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = command(*arguments, "-o", str(tmp_path / "table"), capsys=capsys)
    assert code == 2 and message in " ".join(text.split()), text
    assert not [*tmp_path.iterdir()]


@pytest.mark.launches
def test_one_command_measures_and_writes_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the launches that it plans here those that have a file are not made again: all."""
    from mpi4py import MPI

    vendor = MPI.get_vendor()[0]
    if vendor not in ("MPICH", "Open MPI"):
        pytest.skip("no table of it")
    for variable, value in QUIRKS.items():
        monkeypatch.setenv(variable, value)
    target, library = NAMES[vendor], MPI.Get_library_version()
    table = tmp_path / "table"
    launches = folder_of(table) / "launches"
    launches.mkdir(parents=True)
    names = [name for name, counterpart in algorithms_of(vendor, "reduce").items() if counterpart]
    for index, name in enumerate(["choice", *names]):
        file = "choice" if name == "choice" else f"forced{index}"
        for number in range(4):
            run, us = f"{file}{number}", 5.0 if name == "binomial" else 10.0 + number / 100
            more = {"library": library, "environment": target, "launch": number}
            algorithm = "native" if name == "choice" else f"native(algorithm={name})"
            how = {} if name == "choice" else {"reduce": force_algorithm(vendor, "reduce", name)}
            native = case(run, algorithm, 64, us, **more)
            native.collective, native.ranks, native.root = "reduce", 2, 0
            record = LaunchRecord(
                configuration=f"{target}-2-{file}", launch=number, run=run, environment=target,
                ranks=2, forced=how,
            )  # fmt: skip
            lines = [f"{encoded(line_record)}\n" for line_record in (record, native)]
            (launches / f"{target}-2-{file}-{number:03}.jsonl").write_text("".join(lines))
    files = sorted(launches.iterdir())
    flags = ("--collectives", "reduce", "--sizes", "64", "--ranks", "2", "--launches", "4")
    code, text = command("--to", target, "-o", str(table), *flags, capsys=capsys)
    assert code == 0, text
    assert "reduce, 2 ranks: binomial" in text and table.exists()
    assert f"export {'MPIR_CVAR' if vendor == 'MPICH' else 'OMPI_MCA'}" in text
    assert sorted(launches.iterdir()) == files


# -- the library --------------------------------------------------------------------------


@pytest.mark.launches
def test_mpich_takes_what_the_file_says(tmp_path: Path) -> None:
    """What rounds otherwise in one range of sizes on 6 ranks, and its own choice beside it.

    In a single-threaded program that is flags in shared memory.
    """
    from mpi4py import MPI

    from mpicoll.tune.exports.command import _library

    if MPI.get_vendor()[0] != "MPICH":
        pytest.skip("not MPICH")
    base, bases = mpich.built_in(_library()), mpich.built_in_layers(_library())

    def written(name: str, *parts: Range) -> dict[str, str]:
        table = [Choice("allreduce", 6, 1, [LIBRARY_CHOICE, *parts, Range(None, None, {})])]
        texts = {mpich.MPIR: mpich.tree(table, base), **mpich.layers(table, bases)}
        paths = {end: tmp_path / f"{name}{end or '.json'}" for end in texts}
        for end, text in texts.items():
            paths[end].write_text(text)
        return mpich.variables(table, paths)

    ring = written("ring", Range(32768, "ring", {}))
    # Flags in shared memory are otherwise set up in the fifth call.
    single = {"MPI4PY_RC_THREAD_LEVEL": "single", "MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD": "0"}
    # Two nodes for MPICH, between which it would compose by itself.
    nodes = {"MPIR_CVAR_NUM_CLIQUES": "2"}
    flat = written("flat", Range(32768, "composition_beta", {}))
    program = "tests/support/fingerprints.py", "128", "4096", "65536"
    tuned, flagged, forced_run, composed, asked_flat = (
        json.loads(ranks(6, *program, environment=environment).stdout.splitlines()[-1])
        for environment in (
            ring, ring | single, forced_("ring"), flat | nodes, forced_("composition_beta") | nodes
        )
    )  # fmt: skip
    assert tuned["allreduce 4096"] == flagged["allreduce 4096"] == forced_run["allreduce 4096"]
    assert composed["allreduce 4096"] == asked_flat["allreduce 4096"]
    for name in ("allreduce 128", "allreduce 65536"):
        assert len({result[name] for result in (tuned, flagged, forced_run)}) == 3
        assert composed[name] != asked_flat[name]


@pytest.mark.launches
def test_open_mpi_takes_what_the_file_says(tmp_path: Path) -> None:
    """What rounds otherwise in one range of sizes on 6 ranks, and its own choice beside it."""
    from mpi4py import MPI

    if MPI.get_vendor()[0] != "Open MPI":
        pytest.skip("not Open MPI")
    table = tmp_path / "openmpi.rules"
    ranges = [LIBRARY_CHOICE, Range(32768, "ring", {}), Range(None, None, {})]
    table.write_text(openmpi.rules([Choice("allreduce", 6, 1, ranges)]))
    program = "tests/support/fingerprints.py", "128", "4096", "65536"
    tuned, forced_run, default = (
        json.loads(ranks(6, *program, environment=environment).stdout.splitlines()[-1])
        for environment in (
            openmpi.variables({"": table}),
            force_algorithm("Open MPI", "allreduce", "ring").variables, {},
        )
    )  # fmt: skip
    assert tuned["allreduce 4096"] == forced_run["allreduce 4096"] != default["allreduce 4096"]
    for name in ("allreduce 128", "allreduce 65536"):
        assert tuned[name] == default[name] != forced_run[name]


def forced_(algorithm: str) -> dict[str, str]:
    return force_algorithm("MPICH", "allreduce", algorithm).variables
