"""The algorithms of libraries, and the variables that force them."""

from __future__ import annotations

import pytest

from mpicoll.errors import ArgumentError
from mpicoll.study.libraries import force_algorithm, libraries, variants


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
