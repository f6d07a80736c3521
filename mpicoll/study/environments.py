"""The environments of a study, and the commands that start a launch in one.

A file describes its environments. Without a file, a study takes the environment of this
interpreter, those of ``--install``, and each MPI of PATH with a Python beside it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
from msgspec.structs import replace
from platformdirs import user_data_path

import mpicoll
from mpicoll.errors import ArgumentError
from mpicoll.machine.launchers import LAUNCHERS
from mpicoll.machine.launches import mpirun, planned_ranks
from mpicoll.measurement.worlds import BACKEND
from mpicoll.study.description import Description, Environment
from mpicoll.study.reasons import reason_of
from mpicoll.text.numbers import count_text

INSTALLED = user_data_path("mpicoll") / "environments"
"""Where ``--install`` makes virtual environments."""
LEADS = "mpicoll_study.pth"
"""The last file of an installed environment; if it is missing, the installation did not finish."""
NAMES = {"MPICH": "mpich", "Open MPI": "openmpi", "Intel MPI": "intel"}
_GROUPS = {"nccl": "NCCL", "ccl": "oneCCL"}
_PROBE = """
import json, importlib.util as u
from mpi4py import rc; rc.initialize = False
from mpi4py import MPI
print(json.dumps({"vendor": MPI.get_vendor()[0], "library": MPI.Get_library_version()[:200],
    "mpicoll": u.find_spec("mpicoll") is not None, "torch": u.find_spec("torch") is not None}))
"""
_WHICH = "bash", "-c", 'test -f "$(type -P -- "$0")"'
"""Whether there is a program of this name on PATH, or at this path."""
_VERSIONS = {"(Open MPI)": "Open MPI", "HYDRA": "MPICH", "Intel(R) MPI": "Intel MPI"}
"""Texts that an mpirun prints with its version, and the MPI that it then belongs to."""
_LIMIT = 60.0


class Facts(msgspec.Struct, frozen=True):
    """The output of `_PROBE`: the MPI of an interpreter, and which packages it has."""

    vendor: str
    library: str
    mpicoll: bool
    torch: bool


@dataclass(frozen=True)
class LaunchEnvironment:
    """An environment of one thread level that can be launched.

    Attributes:
        name: of the environment, with the thread level if there are several.
        settings: the description of the environment.
        level: MPI's thread level.
        vendor: of its MPI, as mpi4py names it.
        library: the version of its MPI.
        has_torch: torch is installed.
    """

    name: str
    settings: Environment
    level: str
    vendor: str
    library: str
    has_torch: bool

    def command(
        self, ranks: int, arguments: Sequence[str], per_node: int | None = None
    ) -> list[str]:
        """Return the command that starts Python with these arguments on some ranks."""
        return self.starting(ranks, [python_of(self.settings), *arguments], per_node)

    def starting(
        self, ranks: int, program: Sequence[str], per_node: int | None = None
    ) -> list[str]:
        """Return the command that starts a program on some ranks.

        Args:
            per_node: the ranks of each node, where there are several; None: as the launcher places
                them.
        """
        return with_modules(self.settings, [*self._launcher(ranks, per_node), *program])

    def _launcher(self, ranks: int, per_node: int | None) -> list[str]:
        bind, name = self.settings.bind, launcher_of(self.settings, self.vendor)
        width = str(per_node) if per_node and len(planned_ranks()) > 1 else ""
        if name.startswith("srun-"):
            return [
                "srun", f"--ntasks={ranks}", *([f"--ntasks-per-node={width}"] if width else []),
                f"--mpi={name.removeprefix('srun-')}", f"--cpu-bind={bind}", "--kill-on-bad-exit=1",
            ]  # fmt: skip
        count, ppn = ["-n", str(ranks)], ["-ppn", width] if width else []
        if self.vendor == "Open MPI":
            npernode = ["-N", width] if width else []
            return [name, "--oversubscribe", "--bind-to", bind.removesuffix("s"), *npernode, *count]
        if self.vendor == "Intel MPI":
            return [name, *ppn, *count]  # binds by variables
        return [name, "-bind-to", bind.removesuffix("s"), *ppn, *count]

    @property
    def has_pairs(self) -> bool:
        """Whether pairs are measured in it: only in the environment without torch."""
        return len(set(self.settings.backends)) == 1 and self.settings.group == "gloo"

    @property
    def forces(self) -> str:
        """The library whose algorithms can be forced: MPI, or the library of torch's group."""
        return _GROUPS.get(self.settings.group, self.vendor)

    def variables(self) -> dict[str, str]:
        """Return the variables of a launch's processes."""
        base = variables_of(self.settings)
        intel = _of_intel(self.settings, base) if self.vendor == "Intel MPI" else {}
        group = {BACKEND: self.settings.group} if self.settings.group != "gloo" else {}
        return {**base, **intel, **group, **self.settings.variables}


def _of_intel(settings: Environment, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that bind Intel MPI's ranks and locate the tuning tables of a wheel.

    The launcher of a wheel does not set this location. Without the tables, Intel MPI runs slower
    algorithms.
    """
    pins = {"none": {"I_MPI_PIN": "off"}, "cores": {"I_MPI_PIN_DOMAIN": "core"},
            "sockets": {"I_MPI_PIN_DOMAIN": "socket"}}  # fmt: skip
    root = Path(python_of(settings)).parents[1]
    is_wheel = "I_MPI_ROOT" not in variables and (root / "opt" / "mpi" / "etc").is_dir()
    return pins[settings.bind] | ({"I_MPI_ROOT": str(root)} if is_wheel else {})


def python_of(settings: Environment) -> str:
    """Return the interpreter of an environment."""
    if settings.venv:
        return str(Path(settings.venv).expanduser() / "bin" / "python")
    return str(Path(settings.python).expanduser()) if settings.python else sys.executable


def launcher_of(settings: Environment, vendor: str) -> str:
    """Return ``srun-pmi2``, ``srun-pmix``, or the path of an mpirun."""
    name = os.path.expanduser(settings.launcher)
    if name == "auto":
        in_slurm = "SLURM_JOB_ID" in os.environ and shutil.which("srun") is not None
        name = ("srun-pmix" if vendor == "Open MPI" else "srun-pmi2") if in_slurm else "mpirun"
    if name != "mpirun" or settings.modules:
        return name
    return mpirun(python_of(settings)) or "mpirun"


def with_modules(settings: Environment, command: Sequence[str]) -> list[str]:
    """Return a command that loads an environment's modules before it."""
    if not settings.modules:
        return list(command)
    names = " ".join(map(shlex.quote, settings.modules))
    return ["bash", "-lc", f'module load {names} && exec "$0" "$@"', *command]


def variables_of(settings: Environment) -> dict[str, str]:
    """Return the variables of an environment's processes, without those of a launcher."""
    launcher_names = {
        name for launcher in LAUNCHERS if launcher.name != "srun" for name in launcher[1:] if name
    }
    variables = {name: text for name, text in os.environ.items() if name not in launcher_names}
    # A library may search its files relative to the folder of its launcher.
    variables["PATH"] = f"{Path(python_of(settings)).parent}:{variables.get('PATH', os.defpath)}"
    variables.setdefault("OMP_NUM_THREADS", "1")
    root = Path(mpicoll.__file__).parents[1]
    if root.name != "site-packages":
        variables["PYTHONPATH"] = ":".join(filter(None, (str(root), variables.get("PYTHONPATH"))))
    return variables


# -- which there are ----------------------------------------------------------------------


def find(description: Description) -> tuple[list[LaunchEnvironment], list[str]]:
    """Return the environments of a study, each with one thread level, and remarks on the others.

    Raises:
        ArgumentError: no environment can be launched.
    """
    wanted = description.environments or launchable_environments(candidates())
    environments: list[LaunchEnvironment] = []
    remarks: list[str] = []
    for settings in wanted:
        try:
            facts = probe(settings)
            check_launcher(settings, facts.vendor)
            levels = list(_levels(settings, facts))
            check_start(levels[0], max(description.factors.ranks))
            environments += levels
        except ArgumentError as error:
            remarks.append(f"environment {settings.name} is left out: {error}")
    if not environments:
        none = "no MPI with an mpirun was found: --install mpich makes one"
        raise ArgumentError("; ".join(remarks) or none)
    return environments, remarks


def _levels(settings: Environment, facts: Facts) -> Iterator[LaunchEnvironment]:
    """Yield an environment for each thread level, and another one with torch beside MPI.

    A process with torch has several threads, which makes MPI's calls slower.
    """
    for level in settings.threads:
        name = f"{settings.name}-{level}" if len(settings.threads) > 1 else settings.name
        common = level, facts.vendor, facts.library, facts.torch
        if len(set(settings.backends)) == 1:
            yield LaunchEnvironment(name, settings, *common)
            continue
        yield LaunchEnvironment(name, replace(settings, backends=["mpi4py"]), *common)
        if facts.torch:
            yield LaunchEnvironment(
                f"{name}-torch", replace(settings, algorithms=["none"]), *common
            )


def launchable_environments(environments: Iterable[Environment]) -> list[Environment]:
    """Return the environments that can be launched, one for each library and thread level.

    The name is that of the library, with the level unless it is mpi4py's default.
    """
    by_name: dict[str, Environment] = {}
    for settings in environments:
        try:
            vendor = probe(settings).vendor
            check_launcher(settings, vendor)
        except ArgumentError:
            continue
        (level,) = settings.threads
        name = NAMES.get(vendor, settings.name) + ("" if level == "multiple" else f"-{level}")
        by_name.setdefault(name, replace(settings, name=name))
    return list(by_name.values())


def candidates() -> Iterator[Environment]:
    """Yield possible environments: of this Python, installed, of PATH; some share an MPI."""
    algorithms = ["few"]
    yield Environment(name="own", backends=["mpi4py", "torch"], algorithms=algorithms)
    yield Environment(name="own-single", threads=["single"], algorithms=["none"])
    for path in sorted(INSTALLED.glob(f"*/lib/python*/site-packages/{LEADS}")):
        venv = path.parents[3]
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", venv.name):
            yield Environment(name=venv.name, venv=str(venv), algorithms=algorithms)
    for index, folder in enumerate(os.get_exec_path()):
        directory = Path(folder)
        has_both = (directory / "mpirun").exists() and (directory / "python").exists()
        if has_both and directory.resolve() != Path(sys.executable).parent.resolve():
            yield Environment(
                name=f"path{index}", python=str(directory / "python"), algorithms=algorithms
            )


def probe(settings: Environment) -> Facts:
    """Return the facts of an environment's interpreter, cached by its command.

    Raises:
        ArgumentError: the modules do not load, or the interpreter, MPI or mpicoll is missing.
    """
    python = python_of(settings)
    if settings.modules:
        result = _ask(settings, ["true"])
        if result.returncode:
            output = " ".join(f"{result.stdout} {result.stderr}".split())
            raise ArgumentError(f"module load {' '.join(settings.modules)} fails: {output[:300]}")
    result = _ask(settings, [python, "-c", _PROBE])
    last = (result.stderr.strip().splitlines() or [""])[-1][:300]
    try:
        facts = msgspec.json.decode(result.stdout.strip().splitlines()[-1], type=Facts)
    except (ValueError, IndexError, RecursionError):
        raise ArgumentError(f"{python} finds no MPI: {last}") from None
    if not facts.mpicoll:
        raise ArgumentError(f"{python} has no mpicoll: install it there")
    return facts


def check_launcher(settings: Environment, vendor: str) -> None:
    """Raise ArgumentError if the launcher is missing, or belongs to another MPI."""
    name = launcher_of(settings, vendor)
    program, _, kind = name.partition("-") if name.startswith("srun-") else (name, "", "")
    if _ask(settings, [*_WHICH, program]).returncode:
        raise ArgumentError(
            f"no mpirun is beside {python_of(settings)} or on PATH: name its launcher"
            if name == "mpirun" else f"its launcher {name}: there is no program {program}"
        )  # fmt: skip
    if kind:
        listing = _ask(settings, [program, "--mpi=list"])
        words = f"{listing.stdout} {listing.stderr}".split()
        if listing.returncode:
            raise ArgumentError(f"its launcher {name}: {' '.join(words)[:300]}")
        if kind not in words:
            raise ArgumentError(f"its launcher {name}: srun --mpi=list has no {kind}")
    elif Path(name).name.startswith("mpi"):
        version = _ask(settings, [program, "--version"]).stdout
        owner = next((maker for mark, maker in _VERSIONS.items() if mark in version), vendor)
        if "Open MPI" in (owner, vendor) and owner != vendor:
            raise ArgumentError(
                f"its launcher {name} is {owner}'s, but {python_of(settings)} has {vendor}: "
                f"name {vendor}'s own"
            )


def check_start(environment: LaunchEnvironment, ranks: int) -> None:
    """Raise ArgumentError if the launcher of an environment cannot start enough processes.

    A step of Slurm is not tried, as it may wait in a queue.
    """
    if launcher_of(environment.settings, environment.vendor).startswith("srun-"):
        return
    variables = environment.variables()
    result = _output(tuple(environment.starting(ranks, ["true"])), tuple(variables.items()))
    if result.returncode:
        processes = count_text(ranks, "rank")
        reason = reason_of(f"{result.stdout}\n{result.stderr}")
        raise ArgumentError(f"its launcher does not start {processes}: {reason}")


def _ask(settings: Environment, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    variables = {**variables_of(settings), **settings.variables}
    return _output(tuple(with_modules(settings, command)), tuple(variables.items()))


@cache
def _output(
    command: Sequence[str], variables: Iterable[tuple[str, str]]
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, env=dict(variables), capture_output=True, text=True, errors="replace",
            timeout=_LIMIT, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except OSError as error:
        raise ArgumentError(f"{command[0]} does not start: {error.strerror}") from None
    except (ValueError, subprocess.SubprocessError) as error:
        raise ArgumentError(f"{command[0]} does not start: {error}") from None
