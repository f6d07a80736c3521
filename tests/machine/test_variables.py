"""Which environment variables are shown to others."""

from __future__ import annotations

import pytest

from mpicoll.machine.variables import relevant_variables
from mpicoll.text.masking import MASK


@pytest.mark.parametrize(
    "name",
    ["SLURM_JWT", "MPI_CREDENTIAL", "SLURM_JOB_USER", "SLURM_CONF", "PMI_RANK", "OMPI_UNIVERSE",
     "OMPI_MCA_orte_precondition_transports", "AWS_SECRET_ACCESS_KEY", "HOME"],
)  # fmt: skip
def test_what_tunes_nothing_is_not_shown(name: str) -> None:
    assert relevant_variables({name: "x"}) == {}


@pytest.mark.parametrize(
    "name",
    ["MPICH_ASYNC_PROGRESS", "MPIR_CVAR_CH4_NETMOD", "OMPI_MCA_pml", "OMPI_MCA_btl_tcp_if_include",
     "UCX_TLS", "FI_PROVIDER", "I_MPI_FABRICS", "PSM2_DEVICES", "NCCL_ALGO", "GLOO_SOCKET_IFNAME",
     "TORCH_DISTRIBUTED_DEBUG", "OMP_NUM_THREADS", "SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK",
     "CUDA_VISIBLE_DEVICES", "MPICOLL_RANKS_PER_NODE", "LD_PRELOAD"],
)  # fmt: skip
def test_what_tunes_is_shown(name: str) -> None:
    assert relevant_variables({name: "4"}) == {name: "4"}


@pytest.mark.parametrize(
    "word", ["KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "JWT", "AUTH", "COOKIE"]
)
def test_a_name_that_speaks_of_a_secret_has_its_value_masked(word: str) -> None:
    assert relevant_variables({f"NCCL_{word}_1": "hunter2"}) == {f"NCCL_{word}_1": MASK}
