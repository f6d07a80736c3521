"""The variables of a launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpicoll.study.description import Environment, parse
from mpicoll.study.environments import LaunchEnvironment
from mpicoll.study.launching import variables as launched_with
from mpicoll.study.planning import plan


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
