"""The command that writes a library's table from records, or from launches of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from launcher import QUIRKS
from library_studies import BASE, case, launch, study

from mpicoll.records.lines import LaunchRecord, Record
from mpicoll.records.reading import encoded
from mpicoll.study.description import Description
from mpicoll.study.environments import NAMES
from mpicoll.study.libraries import algorithms_of, force_algorithm
from mpicoll.study.running import store
from mpicoll.tune.exports.command import main
from mpicoll.tune.exports.measuring import folder_of


@pytest.mark.parametrize("target", ["ucc", "nccl"])
def test_a_library_below_the_environment_s_is_named(target: str, tmp_path: Path) -> None:
    """Where several environments were measured, and none of them forced it."""
    path = tmp_path / "records.jsonl"
    records = [*study(), case("x", "native", 64, 1.0, environment="openmpi")]
    path.write_text("".join(f"{encoded(record)}\n" for record in records))
    result = CliRunner().invoke(main, [str(path), "--to", target, "-o", str(tmp_path / "table")])
    assert result.exit_code == 2
    assert f"no native calls of {target.upper()} were measured" in result.output


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
