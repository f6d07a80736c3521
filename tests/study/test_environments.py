"""Environments of a study: interpreters, launchers and modules that start ranks, or do not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from study_environments import OMPI, write_interpreter, write_program

from mpicoll.errors import ArgumentError
from mpicoll.study import environments
from mpicoll.study.description import Description, Environment, Factors
from mpicoll.study.environments import LaunchEnvironment, find
from mpicoll.study.planning import plan


def test_a_command_starts_ranks_bound_and_with_the_level() -> None:
    study = Description(factors=Factors(collectives=["bcast"], sizes=["1K", 64]))
    configuration = plan(study, [OMPI]).configurations[0]
    command = OMPI.command(2, configuration.arguments(study, 3.0, 4, "x.jsonl"))
    text = " ".join(command)
    assert "--bind-to core -n 2" in text and "--threads single" in text and "--seed 4" in text
    assert "mpicoll.bench broadcast --sizes 1024,64" in text


def test_modules_are_loaded_before() -> None:
    settings = Environment(name="x", modules=["gcc", "mpich/5 x"], launcher="srun-pmi2")
    command = LaunchEnvironment("x", settings, "multiple", "MPICH", "", False).command(4, ["-V"])
    assert command[:3] == ["bash", "-lc", 'module load gcc \'mpich/5 x\' && exec "$0" "$@"']
    assert command[3:7] == ["srun", "--ntasks=4", "--mpi=pmi2", "--cpu-bind=none"]


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


def test_an_interpreter_is_asked_once(tmp_path: Path) -> None:
    """By what a study finds and by its plan, at every thread level; with other variables anew."""
    python, starts = write_interpreter(tmp_path), tmp_path / "starts"
    write_program(tmp_path / "mpirun", "true")
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
    python = write_interpreter(tmp_path, vendor)
    for name, text in programs.items():
        write_program(tmp_path / name, text)
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
    write_program(tmp_path / "loaded" / "mpirun", HYDRA)
    (tmp_path / ".bash_profile").write_text(MODULE % (tmp_path / "loaded"))
    path = os.environ["PATH"].split(":")
    without = [entry for entry in path if not (Path(entry) / "mpirun").exists()]
    monkeypatch.setenv("PATH", ":".join(without))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    settings = Environment(name="x", python=str(write_interpreter(tmp_path)), modules=names)
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
