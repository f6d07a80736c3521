"""Schedules shown round by round: traces, words, the terminal, diagrams and bad usage."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from catalogue import CATALOGUE, label
from rich.console import Console

from mpicoll.algorithms.registry import Algorithm, algorithms, find
from mpicoll.costs import Switch, ranking
from mpicoll.costs.models import DEFAULT
from mpicoll.errors import ArgumentError
from mpicoll.explain import __main__ as command_line
from mpicoll.explain.diagram import diagram
from mpicoll.explain.measures import crossover, minimum
from mpicoll.explain.page import as_data, page
from mpicoll.explain.terminal import show
from mpicoll.explain.trace import trace_rounds
from mpicoll.explain.words import reasons, sentence, verdict
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.simulator import contiguous

SVG = "{http://www.w3.org/2000/svg}"


def served_size(algorithm: Algorithm) -> int:
    """Return a number of ranks that an algorithm serves."""
    return next(size for size in (6, 8, 9) if algorithm.needs.holds(size))


def printed(*names: str, of: str = "allreduce", ranks: int = 4, **more: object) -> str:
    console = Console(file=io.StringIO(), width=140, **more)  # type: ignore[arg-type]
    show([trace_rounds(find(of, name), ranks) for name in names], console)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("algorithm", CATALOGUE, ids=label)
def test_every_schedule_ends_as_the_contract_demands(algorithm: Algorithm) -> None:
    """With a sentence for each round, a verdict, reasons, the page's data, and a diagram."""
    shown = trace_rounds(algorithm, served_size(algorithm))
    assert shown.completion(shown.rounds) == 1.0
    assert all(sentence(shown, now).endswith(".") for now in range(shown.rounds + 1))
    assert str(algorithm) in verdict(shown)
    assert reasons(shown)
    assert len(as_data(shown)["rounds"]) == shown.rounds + 1
    drawn = ElementTree.fromstring(diagram([shown]))
    heads = [path for path in drawn.iter(f"{SVG}path") if path.get("class") == "head"]
    assert len(heads) == shown.proof.messages
    assert verdict(shown) in [text.text for text in drawn.iter(f"{SVG}text")]


@pytest.mark.parametrize("of", COLLECTIVES)
def test_a_rank_alone_has_nothing_to_explain(of: str) -> None:
    traces = [trace_rounds(algorithm, 1) for algorithm in algorithms(of)]
    assert {reason for trace in traces for reason in reasons(trace)} == {
        "A single rank has no one to send to."
    }


def test_the_page_builds_the_states_that_the_simulator_saw() -> None:
    """From the first one and what changes, as the script does."""
    shown = trace_rounds(find("allreduce", "rabenseifner"), 6)
    masks = [[0] * len(shown.columns) for _ in range(6)]
    for now, step in enumerate(as_data(shown)["rounds"]):
        for rank, column, mask, _ in step["cells"]:
            masks[rank][column] = mask
        assert masks == [[cell.mask for cell in row] for row in shown.states[now]]


def test_a_ring_is_explained_step_by_step() -> None:
    lines = printed("ring").splitlines()
    assert "Round 2 of 6  Each rank sends the block it has just reduced (m/4) to its right" in (
        " ".join(lines)
    )
    assert "ring: 6 rounds where 2 would do; 1.5 m sent, the least possible" in lines
    assert sum(line.startswith("  rank 0") for line in lines) == 7


def test_two_are_compared_where_they_cross() -> None:
    text = " ".join(printed("ring", "recursive_doubling", ranks=8).split())
    assert "recursive_doubling is faster up to 430 KiB, ring above" in text
    assert "So this is bandwidth-optimal" in text
    assert "So this is latency-optimal" in text
    first_trace, second_trace = (
        trace_rounds(find("allreduce", name), 8) for name in ("ring", "recursive_doubling")
    )
    assert crossover(first_trace, second_trace) == pytest.approx(440000)


def test_the_crossover_is_that_of_costs_where_folds_are_free() -> None:
    names = "recursive_doubling", "ring"
    small, large = (trace_rounds(find("allreduce", name), 8) for name in names)
    scenario = ranking.Scenario("allreduce", replace(DEFAULT, gamma=0.0), Switch(8))
    families = ranking.candidates("allreduce", names)
    first, _ = ranking.rank(scenario, families, (8, 1 << 30)).ranges(8, 1 << 30)
    assert crossover(small, large) == pytest.approx(first.high, rel=1e-6)


def test_least_are_rounds_and_bytes() -> None:
    assert minimum(trace_rounds(find("broadcast", "binomial"), 9)) == (4, 1.0)


def test_it_reads_without_colour_and_without_unicode() -> None:
    plain = printed("ring", color_system=None)
    assert "\x1b[" not in plain
    assert "\x1b[" in printed("ring", color_system="standard", force_terminal=True)


def test_a_barrier_shows_who_has_heard_of_whom() -> None:
    shown = trace_rounds(find("barrier", "dissemination"), 4)
    assert [[cell.mask for (cell,) in state] for state in shown.states] == [
        [0b0001, 0b0010, 0b0100, 0b1000], [0b1001, 0b0011, 0b0110, 0b1100], [15] * 4,
    ]  # fmt: skip


def test_messages_between_nodes_are_marked() -> None:
    console = Console(file=io.StringIO(), width=140)
    show([trace_rounds(find("allreduce", "two_level"), 4, 0, contiguous(4, 2))], console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "on 2 nodes: 0-1; 2-3" in text
    assert "]@" in text


# -- the command --------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(line: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["explain", *line.split()])
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        streams = capsys.readouterr()
        return int(ended.value.code or 0), streams.out + streams.err

    return run


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("scan", ["linear", "keeps order"]),
        ("allreduce ring --prove 4", ["4 ranks", "ring", "1.5"]),
        ("broadcast knomial(radix=2:3) --prove 3", ["knomial(radix=2)", "knomial(radix=3)"]),
        ("allreduce --defaults --ranks 8", ["MPICH", "Open MPI", "rabenseifner"]),
        ("allgather --defaults --counts", ["MPICH", "Open MPI"]),
    ],
)
def test_a_collective_is_listed_proved_and_compared_with_libraries(
    command, line: str, parts: list[str]
) -> None:
    code, text = command(line)
    assert code == 0
    assert [part for part in parts if part not in text] == []


def test_without_a_collective_all_algorithms_are_listed(command) -> None:
    code, text = command("")
    assert code == 0
    assert [name for name in COLLECTIVES if name not in text] == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "allreduce -o ring.svg",
            "name one or more algorithms of allreduce: ring,",
        ),
        ("--defaults", "name a collective, as allreduce"),
        ("allreduce --prove 4 --defaults", "--prove takes neither --defaults nor -o"),
        ("allreduce ring --prove 0", "no sizes of one rank and more"),
        ("allreduce rign", "did you mean 'ring'"),
        ("nothing ring", "unknown collective"),
        ("allreduce ring --root 1", "allreduce has no root"),
        ("broadcast binomial --root 4", "root 4 is not one of 4 ranks"),
        ("allgather swing --ranks 5", "needs an even number of ranks, not 5"),
        ("allreduce ring --nodes 5", "4 ranks cannot be on 5 nodes"),
        ("allreduce ring -o ring.gif", "a diagram (.svg), of a page (.html), or"),
        ("allreduce ring --ranks 17 -o ring.html", "a page plays 2 to 16 ranks, not 17"),
        ("allreduce ring -o /nowhere/ring.svg", "cannot write /nowhere/ring.svg"),
        ("allreduce ring --ranks 65", "65 ranks are too many to show: at most 64"),
        ("allreduce ring swing -o two.goal", "a .goal file holds one schedule: name one of 2"),
        ("allreduce rabenseifner -n 3 -o /nowhere/r.et", "cannot write /nowhere/r.et"),
        ("broadcast binomial -o binomial.xml", "MSCCL has no broadcast"),
    ],
)
def test_bad_usage_is_explained(command, line: str, message: str) -> None:
    code, text = command(line)
    assert code == 2
    assert message in text


@pytest.mark.parametrize(("name", "begins"), [("r.svg", "<svg"), ("r.html", "<!DOCTYPE html>")])
def test_files_are_written_whole(command, tmp_path: Path, name: str, begins: str) -> None:
    code, text = command(f"broadcast knomial(radix=3) --ranks 9 --root 2 -o {tmp_path / name}")
    assert code == 0
    assert f"{name}: " in text
    assert (tmp_path / name).read_text("utf-8").startswith(begins)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("name", "files"),
    [("r.goal", ["r.goal"]), ("r.et", ["r.0.et", "r.1.et", "r.2.et"]), ("r.XML", ["r.XML"])],
)
def test_schedules_are_written_for_other_software(
    command, tmp_path: Path, name: str, files: list[str]
) -> None:
    code, text = command(f"allreduce ring --ranks 3 --bytes 64K -o {tmp_path / name}")
    assert code == 0
    assert f"{files[0]}" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_more_ranks_are_written_than_shown(command, tmp_path: Path) -> None:
    code, _ = command(f"allreduce ring --ranks 80 -o {tmp_path / 'ring.goal'}")
    assert code == 0
    assert (tmp_path / "ring.goal").read_text().startswith("num_ranks 80\n")


def test_the_command_prints_to_the_terminal(command) -> None:
    code, text = command("scatter binomial --ranks 4 --root 1")
    assert code == 0
    assert "scatter: binomial, 4 ranks" in text


def test_a_page_refuses_a_crowd() -> None:
    with pytest.raises(ArgumentError, match="2 to 16"):
        page([find("allreduce", "ring")], 1)


@pytest.mark.parametrize(
    ("of", "sent", "moved"), [("broadcast", 3, 3), ("reduce", 1, 3), ("allreduce", 3, 3)]
)
def test_the_busiest_rank_sends_or_receives(of: str, sent: float, moved: float) -> None:
    shown = trace_rounds(find(of, "naive"), 4)
    assert (shown.sent(shown.rounds), shown.moved(shown.rounds)) == (sent, moved)


def test_a_page_escapes_names() -> None:
    text = page([replace(find("allreduce", "ring"), name="<b>ring</b>")], 4)
    assert "<title>allreduce: &lt;b&gt;ring&lt;/b&gt;</title>" in text
    assert "<b>" not in text
