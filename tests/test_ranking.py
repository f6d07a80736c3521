"""Rankings, crossovers and the command that prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from reporting import case

from mpicoll.algorithms import find
from mpicoll.costs import FatTree, Hockney, Model, Switch, compiled, simulate
from mpicoll.costs.__main__ import main
from mpicoll.costs.fitting import fitted
from mpicoll.costs.ranking import Setting, candidates, curve, rank
from mpicoll.errors import ArgumentError

ALPHA, BETA, GAMMA = 3e-6, 2e-10, 1e-10
MODEL: Model = Hockney(ALPHA, BETA, GAMMA)


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def records(*args: str) -> list[dict[str, Any]]:
    done = run(*args, "--format", "jsonl")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_crossover_of_two_closed_forms() -> None:
    """3 (a + m (b + g)) and 6 a + 7/8 m (2 b + g) meet at one size."""
    setting = Setting("allreduce", MODEL, Switch(8))
    two = candidates("allreduce", ["recursive_doubling", "rabenseifner"])
    first, last = rank(setting, two, (8, 1 << 30)).ranges(8, 1 << 30)
    meet = 3 * ALPHA / (3 * (BETA + GAMMA) - 7 / 8 * (2 * BETA + GAMMA))
    assert first.high == last.low == pytest.approx(meet, rel=1e-3)
    assert (first.algorithm.name, last.algorithm.name) == ("recursive_doubling", "rabenseifner")


@pytest.mark.parametrize("name", ["ring", "two_shot", "reduce+broadcast", "rabenseifner"])
@pytest.mark.parametrize("nbytes", [100, 5000, 10**6, 3 * 10**8])
def test_curves_are_near_the_price_between_their_points(name: str, nbytes: int) -> None:
    setting = Setting("allreduce", MODEL, FatTree(12, radix=4, oversubscription=2))
    found = curve(find("allreduce", name), setting, (8, 1 << 30))
    program = compiled(find("allreduce", name), 12, nodes=setting.topology.groups)
    exact = simulate(program, nbytes, MODEL, setting.topology)
    assert found.seconds(nbytes) == pytest.approx(exact, rel=0.1)


def test_the_best_number_of_segments_grows_with_the_size() -> None:
    setting = Setting("broadcast", MODEL, Switch(8))
    chains = rank(setting, candidates("broadcast", ["chain"]), (8, 10**6, 1 << 28))
    best = [chains.at(nbytes)[0].algorithm.parameters["segments"] for nbytes in (8, 10**6, 1 << 28)]
    assert best[0] == 1 < best[1] < best[2]


def test_the_ranking_ends_with_the_bound_and_what_has_no_price() -> None:
    done = run(
        "allreduce", "--ranks", "6", "--bytes", "1K,1M", "--algorithms", "ring,swing,trivance"
    )
    assert done.exit_code == 0
    assert "bound" in done.output
    assert "not priced: trivance" in done.output
    found = records("allreduce", "--ranks", "6", "--bytes", "1K", "--algorithms", "ring,trivance")
    kinds = [each["kind"] for each in found]
    assert kinds == ["setting", "bound", "price", "cheapest", "unpriced"]
    assert found[2]["over_bound"] >= 1
    assert "power of three" in found[-1]["reason"]


@pytest.mark.parametrize(
    "topology",
    [
        ("switch",), ("nodes", "--ranks-per-node", "2", "--within-us", "0.1"),
        ("fat-tree", "--ranks-per-leaf", "4", "--oversubscription", "2"),
        ("torus", "--dims", "2x4"), ("dragonfly", "--routers", "2", "--ranks-per-router", "2"),
    ],
    ids=lambda each: each[0],
)  # fmt: skip
@pytest.mark.parametrize("model", [("hockney",), ("hockney", "--ports", "0"), ("loggp",)], ids=str)
def test_every_topology_under_every_model(
    topology: tuple[str, ...], model: tuple[str, ...]
) -> None:
    found = records("allgather", "--ranks", "8", "--algorithms", "ring,lanes", "--topology",
                    *topology, "--model", *model)  # fmt: skip
    prices = [each["over_bound"] for each in found if each["kind"] == "price"]
    assert prices and min(prices) >= 1 - 1e-9


def test_simulated_or_in_closed_form() -> None:
    args = "allreduce", "--ranks", "8", "--algorithms", "ring"
    closed, simulated = records(*args)[2], records(*args, "--events")[2]
    assert (closed["priced_by"], simulated["priced_by"]) == ("closed form", "events")
    assert closed["seconds"] == pytest.approx(simulated["seconds"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("allreduce", "--ranks", "8", "--topology", "torus"), "--dims 16x16x16"),
        (("allreduce", "--ranks", "8", "--topology", "torus", "--dims", "2y4"), "no shape"),
        (("allreduce", "--ranks", "8", "--bytes", "4X"), "'4X' is not a size"),
        (("allreduce", "--ranks", "8", "--sweep", "1G:8"), "--sweep 1G:8"),
        (("allreduce", "--ranks", "8", "--algorithms", "rng"), "did you mean 'ring'"),
        (("broadcast", "--ranks", "8", "--algorithms", "chain(segments=8:1)"), "is empty"),
        (("broadcast", "--ranks", "8", "--root", "8"), "root 8 is not one of 8"),
        (("allreduce", "--ranks", "8", "--model", "loggp", "--alpha-us", "0.1"), "L + 2o"),
        (("allreduce", "--ranks", "8", "--algorithms", "trivance"), "power of three"),
        (("gossip", "--ranks", "8"), "unknown collective 'gossip'"),
    ],
)  # fmt: skip
def test_bad_usage(args: tuple[str, ...], message: str) -> None:
    done = run(*args)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def measured(alpha: float, beta: float, gamma: float) -> list[dict[str, Any]]:
    """Return records of a machine on which Hockney's model is exact."""
    model = Hockney(alpha, beta, gamma, ports=None)
    return [
        case(name, 1e6 * simulate(compiled(find("allreduce", name), ranks), nbytes, model,
                                  Switch(ranks)), nbytes, ranks=ranks)
        for name in ("ring", "recursive_doubling", "rabenseifner")
        for nbytes in (8, 1024, 1 << 20)
        for ranks in (4, 8)
    ]  # fmt: skip


def test_alpha_beta_and_gamma_from_records_of_the_harness() -> None:
    link, within, gamma, source = fitted(measured(ALPHA, BETA, GAMMA), "mpi4py")
    assert (*link, gamma) == pytest.approx((ALPHA, BETA, GAMMA), rel=1e-6)
    assert within is None
    assert source == "18 times of schedules, with a median error of 0%"


def test_nothing_is_fitted_below_zero() -> None:
    assert fitted(measured(ALPHA, BETA, 0.0), "mpi4py").gamma == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("lines", [[], [case("native")] * 3, [case("ring")]], ids=len)
def test_records_that_tell_nothing(lines: list[dict[str, Any]]) -> None:
    with pytest.raises(ArgumentError, match=r"neither fits nor .* mpicoll\.p2p makes fits"):
        fitted(lines, "mpi4py")


def test_parameters_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in measured(ALPHA, BETA, GAMMA)))
    args = "allreduce", "--ranks", "8", "--algorithms", "ring", "--from", str(path)
    assert records(*args)[0]["model"][1]["alpha"] == pytest.approx(ALPHA)
    assert records(*args, "--alpha-us", "7")[0]["model"][1]["alpha"] == pytest.approx(7e-6)
