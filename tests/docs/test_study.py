"""The published study: its page follows from its records, and its descriptions can be run.

The figures of the page are recomputed from the Parquet files alone, without the study's code.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import pytest
from launcher import ROOT, python
from pages import PAGES, blocks_of

from mpicoll.docs.study_evidence import (
    HOSTS_BY_MESSAGES,
    LIBRARIES,
    PAGE_FAULTS,
    PERSISTENT,
    ROUNDS,
    SHARED_MEMORY,
    STUDIES,
    Finding,
    Published,
    in_words,
    read_studies,
    span,
)
from mpicoll.docs.study_findings import all_findings
from mpicoll.docs.study_libraries import fastest_of_cases
from mpicoll.docs.study_pages import FOLDER, PAGE, main, page
from mpicoll.errors import ArgumentError
from mpicoll.measurement.statistics import median_interval
from mpicoll.study.description import load

parquet = pytest.importorskip("pyarrow.parquet")
COUNT = 12
"""The number of findings."""
_MOST_BYTES = 3 << 20
"""The size of all records together."""
Place = tuple[str, int, int]
"""A collective, a number of ranks, and a size in bytes."""


@pytest.fixture(scope="module")
def studies() -> dict[str, Published]:
    return read_studies(FOLDER)


@pytest.fixture(scope="module")
def findings(studies: dict[str, Published]) -> list[Finding]:
    return all_findings(studies)


def test_the_page_is_that_of_the_records(studies: dict[str, Published]) -> None:
    assert (FOLDER / PAGE).read_text() == page(studies)


def test_the_findings_are_short(findings: list[Finding]) -> None:
    sentences = [finding.sentence for finding in findings]
    assert len(sentences) == COUNT
    assert [sentence for sentence in sentences if len(sentence.split()) > 25] == []


def test_every_finding_has_a_figure_its_strength_and_a_command(findings: list[Finding]) -> None:
    for finding in findings:
        assert any(character.isdigit() for character in finding.sentence)
        assert finding.table.count("\n") >= 2 and finding.strength and finding.limits
        assert finding.studies and {*finding.studies} <= {*STUDIES}


@pytest.mark.parametrize("index", range(COUNT))
def test_a_cause_has_its_experiment_and_says_what_was_not_tested(
    index: int, findings: list[Finding]
) -> None:
    cause = findings[index].cause
    if cause:
        assert cause.table.count("\n") >= 2 and {*cause.studies} <= {*STUDIES}
        assert cause.tested and cause.result and cause.untested


@pytest.mark.parametrize("index", range(COUNT))
def test_a_finding_states_its_strength(index: int, findings: list[Finding]) -> None:
    """Launches, samples, disturbances, binding, load and commits, where times are compared."""
    finding = findings[index]
    if finding.cause:
        for text in (finding.strength, finding.cause.strength):
            assert re.search(
                r"a case has .*\d launches\. The median launch has \d+ samples?\.", text
            )
            assert re.search(
                r"\d+ % of the records have a single sample, and \d+ % are undist", text
            )
            assert re.search(
                r"Ranks were (not )?bound to cores\. The load before a launch .* cores\.", text
            )
            assert re.search(r"Commits? [0-9a-f]{8}", text)


def test_the_first_screen_is_the_table_of_the_fastest() -> None:
    """The answer, then the table: before any finding."""
    lines = (FOLDER / PAGE).read_text().splitlines()
    table = lines.index("| case | times as fast | algorithm, us | library, us |")
    assert table <= 8 and any("of 82 cases" in line for line in lines[:4])
    assert len(" ".join(lines[:table]).split()) < 90


def test_the_first_screen_of_readme_has_the_answer_and_its_figure(findings: list[Finding]) -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert findings[0].sentence in lines[:8]
    assert any("mpicoll/docs/study/allreduce.svg" in line for line in lines[:10])


# -- recomputed ---------------------------------------------------------------------------


def test_the_program_of_the_page_recomputes_the_first_finding(
    findings: list[Finding], tmp_path: Path
) -> None:
    (block,) = (
        block for block in blocks_of(FOLDER / PAGE) if block.file_name == "recompute.py"
    )  # fmt: skip
    (tmp_path / block.file_name).write_text(block.text)
    result = python(str(tmp_path / block.file_name))
    means = re.findall(r"ranks: (\d\.\d\d) times", result.stdout)
    assert findings[0].sentence.endswith(f"{means[0]} times on 2 ranks, {means[1]} on 4.")


def rows_of(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(FOLDER / f"{name}.parquet").to_pylist()
    return [row for row in rows if row.get("time_us.median") and row.get("correct") is not False]


def by_launch(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, dict[str, Any]]]:
    """Return the rows of each contestant of each case by launch."""
    groups: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        place = row["collective"], row["ranks"], row["bytes_total"]
        name = row["environment"], row["backend"], row["algorithm"]
        groups[(*place, *name)][row["run.id"]] = row
    return groups


def middle(launches: Mapping[str, dict[str, Any]]) -> float:
    return median(row["time_us.median"] for row in launches.values())


@pytest.fixture(scope="module")
def ratios() -> dict[Place, list[float]]:
    """Return the ratios within the launches of the strongest call of each case."""
    groups = by_launch(rows_of(LIBRARIES))
    results = {}
    for place in dict.fromkeys(key[:3] for key in groups):
        calls = {key: middle(launches) for key, launches in groups.items()
                 if key[:3] == place and key[5] == "native"}  # fmt: skip
        strongest = min(calls, key=lambda key: calls[key])
        ours = groups[(*strongest[:5], "auto")]
        if strongest[4] == "mpi4py":
            # The fastest schedule of the environment, where both backends have one.
            ours = min(
                (groups[key] for key in groups
                 if key[:4] == strongest[:4] and key[5] == "auto"), key=middle,
            )  # fmt: skip
        results[place] = [
            ours[run].get("speedup_vs_native.ratio")
            if ours[run]["backend"] == strongest[4] else
            row["time_us.median"] / ours[run]["time_us.median"]
            for run, row in groups[strongest].items() if run in ours
        ]  # fmt: skip
    return results


def test_the_first_finding_is_recomputed_within_launches(
    ratios: dict[Place, list[float]], findings: list[Finding]
) -> None:
    kinds = Counter[str]()
    for values in ratios.values():
        _, low, high = median_interval(values)
        kinds["faster" if low > 1.01 else "slower" if high < 1 / 1.01 else "open"] += 1
    means = [
        geometric_mean(median(values) for (_, count, _), values in ratios.items() if count == ranks)
        for ranks in (2, 4)
    ]
    assert findings[0].sentence.endswith(
        f"in {kinds['faster']} of {len(ratios)} cases, on average {means[0]:.2f} times on 2 ranks, "
        f"{means[1]:.2f} on 4."
    )
    assert min(map(len, ratios.values())) >= 6


def test_the_table_of_the_fastest_has_the_recomputed_ratios(
    ratios: dict[Place, list[float]], studies: dict[str, Published]
) -> None:
    bests = [best for ranks in (2, 4) for best in fastest_of_cases(studies[LIBRARIES], ranks)]
    assert sorted(best.ratio.ratio for best in bests) == pytest.approx(
        sorted(median(values) for values in ratios.values())
    )
    for best in bests:
        quotient = best.library_us / best.algorithm_us
        assert best.ratio.sign or quotient / best.ratio.ratio == pytest.approx(1, abs=0.3)


def test_what_mpich_alone_gives_is_recomputed(findings: list[Finding]) -> None:
    groups = by_launch(rows_of(LIBRARIES))
    means = {}
    for ranks in (2, 4):
        places = {key[:3] for key in groups if key[1] == ranks}
        means[ranks] = geometric_mean(
            min(middle(groups[key]) for key in groups if key[:3] == place and key[5] == "native")
            / middle(groups[(*place, "mpich", "mpi4py", "auto")])
            for place in places
        )
    assert f"is {means[2]:.2f} times as fast as the best" in findings[0].choice
    assert f"and {means[4]:.2f} times on 4" in findings[0].choice


def test_the_slow_calls_at_thread_level_single_are_recomputed(findings: list[Finding]) -> None:
    groups = by_launch(rows_of(LIBRARIES))
    single, multiple = (
        middle(groups["allreduce", 4, 4096, name, "mpi4py", "native"])
        for name in ("mpich-single", "mpich")
    )
    (finding,) = [entry for entry in findings if "MPI_THREAD_SINGLE" in entry.sentence]
    assert f"takes {single:.0f} us" in finding.sentence
    assert f"{multiple:.1f} us at MULTIPLE" in finding.sentence


def test_the_time_of_mpich_beside_torch_is_stated(findings: list[Finding]) -> None:
    (finding,) = [entry for entry in findings if "gloo's messages" in entry.sentence]
    assert re.search(
        r"Beside torch MPICH takes \d\S* to \d\S* times as long as alone", finding.strength
    )


def within(
    groups: Mapping[tuple[Any, ...], dict[str, dict[str, Any]]], ours: tuple[Any, ...],
    reference: tuple[Any, ...],
) -> float:  # fmt: skip
    """Return how many times as fast a contestant is, as the median over common launches."""
    column = "speedup_vs_native.ratio" if ours[4] == reference[4] else "speedup_vs_other.ratio"
    against = f"{reference[4]} {reference[5]}"
    return median(
        row[column]
        if row[column] and (ours[4] == reference[4] or row["speedup_vs_other.against"] == against)
        else groups[reference][run]["time_us.median"] / row["time_us.median"]
        for run, row in groups[ours].items() if run in groups[reference]
    )  # fmt: skip


def test_the_share_of_shared_memory_is_recomputed(findings: list[Finding]) -> None:
    memory, messages = by_launch(rows_of(LIBRARIES)), by_launch(rows_of("algorithms"))
    native, auto = ("mpich", "mpi4py", "native"), ("mpich", "mpi4py", "auto")
    texts = []
    for ranks in (2, 4):
        ratios: list[tuple[float, float]] = []
        for place in {key[:3] for key in messages if key[1] == ranks and key[2] <= 1 << 20}:
            schedules = [
                key for key in messages
                if key[:5] == (*place, "mpich", "mpi4py") and key[5].endswith("@point-to-point")
            ]  # fmt: skip
            best = min(schedules, key=lambda key: middle(messages[key]))
            ratios.append((
                within(memory, (*place, *auto), (*place, *native)),
                within(messages, best, (*place, *native)),
            ))  # fmt: skip
        texts.append([f"{geometric_mean(values):.2f}" for values in zip(*ratios, strict=True)])
    cause = cause_of("`auto` beats", findings)
    assert f"is {texts[0][0]} times as fast as MPICH's call on 2 ranks" in cause
    assert f"and {texts[1][0]} times on 4." in cause
    assert f"algorithm is {texts[0][1]} and {texts[1][1]} times as fast" in cause


def test_gloo_between_hosts_is_recomputed(findings: list[Finding]) -> None:
    (finding,) = [entry for entry in findings if "gloo's messages" in entry.sentence]
    values = []
    for name in ("nodes-2x2", "algorithms"):
        place = "allreduce", 4, 64, "mpich-torch"
        groups = by_launch(rows_of(name))
        values.append(1 / within(groups, (*place, "torch", "native"), (*place, "mpi4py", "native")))
    assert finding.cause
    assert f"of 64 B takes {values[0]:.1f} times as long as MPICH's" in finding.cause.text
    assert f"and {values[1]:.1f} times on one node" in finding.cause.text


def cause_of(words: str, findings: list[Finding]) -> str:
    """Return the text of the cause of the finding with some words."""
    (cause,) = [finding.cause for finding in findings if words in finding.sentence]
    assert cause
    return cause.text


def test_emulated_hosts_count_all_cases(findings: list[Finding]) -> None:
    (finding,) = [entry for entry in findings if "emulated hosts, mpicoll" in entry.sentence]
    cells = [cell for line in finding.table.splitlines()[2:] for cell in line.split(" | ")[1:]]
    assert len(cells) == 96 and "Of 24 cases on each" in finding.sentence
    undecided = sum("?" in cell or "~" in cell for cell in cells)
    assert f"Undecided: {undecided}." in finding.strength


Launches = dict[str, dict[str, Any]]


def times_as_long(side: Launches, reference: Launches) -> float:
    """Return how many times as long a contestant takes, by the quotients of launches."""
    return 1 / median(
        reference[run]["time_us.median"] / row["time_us.median"]
        for run, row in side.items() if run in reference
    )  # fmt: skip


def is_faster(side: Launches) -> bool:
    """Whether a contestant is surely faster than the library's call, by the ratios of launches."""
    ratios = [row["speedup_vs_native.ratio"] for row in side.values()]
    return len(ratios) >= 6 and median_interval(ratios)[1] > 1.01


def test_the_fastest_in_shared_memory_is_recomputed(findings: list[Finding]) -> None:
    groups = by_launch(rows_of(SHARED_MEMORY))
    (finding,) = [entry for entry in findings if "In shared memory" in entry.sentence]
    names = "one_shot", "two_shot", "recursive_doubling", "rabenseifner", "ring"
    for size, text in ((64, "64 B"), (1 << 16, "64K"), (16 << 20, "16M")):
        case = "allreduce", 4, size, "mpich", "mpi4py"
        times = {name: middle(groups[(*case, f"{name}@symmetric")]) for name in names}
        fastest = min(times, key=lambda name: times[name])
        assert f"`{fastest}` at {text}" in finding.sentence


@pytest.mark.parametrize(
    ("words", "study", "suffix"),
    [
        ("In shared memory", SHARED_MEMORY, "@symmetric"),
        ("MPICH's messages on 4 ranks", ROUNDS, "@point-to-point"),
    ],
)
def test_the_worth_of_rounds_and_bytes_is_recomputed(
    words: str, study: str, suffix: str, findings: list[Finding]
) -> None:
    groups = by_launch(rows_of(study))
    shares = []
    for size, name, other in ((64, "ring", "ring_unchunked"), (16 << 20, "ring_unchunked", "ring")):
        case = "allreduce", 4, size, "mpich", "mpi4py"
        share = times_as_long(groups[(*case, name + suffix)], groups[(*case, other + suffix)])
        shares.append(f"{share:.3g}"[:4])
    text = cause_of(words, findings)
    assert re.search(rf"with more rounds, takes {re.escape(shares[0])}\S*( \(.*?\))? times", text)
    assert re.search(rf"with more bytes, takes {re.escape(shares[1])}\S*( \(.*?\))? ti", text)
    assert "has 3 rounds, and a rank sends 3 vectors; `ring` has 6 rounds and 1.5 v" in text


def test_the_worth_of_segments_is_recomputed(findings: list[Finding]) -> None:
    groups = by_launch(rows_of(ROUNDS))
    text = cause_of("In broadcasts on 4 ranks", findings)
    for size, words in ((64, "64 B"), (16 << 20, "16M")):
        case = "broadcast", 4, size, "mpich", "mpi4py"
        segments, whole = (groups[(*case, f"chain(segments={n})@point-to-point")] for n in (8, 1))
        share = f"{times_as_long(segments, whole):.3g}"[:4]
        assert re.search(rf"{re.escape(share)}\S*( \(.*?\))? times.*at {words}", text)


def test_persistent_calls_are_recomputed(findings: list[Finding]) -> None:
    groups = by_launch(rows_of(PERSISTENT))
    text = cause_of("the libraries' own calls", findings)
    for ranks in (2, 4):
        calls = [
            side for key, side in groups.items()
            if key[1] == ranks and key[5] == "native_persistent"
        ]  # fmt: skip
        mean = geometric_mean(
            median(row["speedup_vs_native.ratio"] for row in side.values()) for side in calls
        )
        count = f"{sum(map(is_faster, calls))} of {len(calls)} cases"
        assert f"On {ranks} ranks persistent calls are surely faster in {count}." in text
        assert f"On average they are {mean:.3g}"[:-1] in text


def test_two_calls_with_kept_memory_are_recomputed(findings: list[Finding]) -> None:
    groups = by_launch(rows_of(PAGE_FAULTS))
    text = cause_of("take", [entry for entry in findings if "one call for" in entry.sentence])
    for environment in ("mpich", "mpich-kept"):
        shares = sorted(
            1 / median(
                row["speedup_vs_native.ratio"]
                for row in groups[
                    "allreduce", 2, size, environment, "mpi4py", "native:reduce+broadcast"
                ].values()
            )
            for size in (1 << 20, 16 << 20)
        )  # fmt: skip
        texts = [re.escape(f"{share:.3g}"[:4]) for share in shares]
        assert re.search(rf"{texts[0]}\S*( \(.*?\))? to {texts[1]}", text)


def test_hosts_without_shared_memory_are_recomputed(findings: list[Finding]) -> None:
    groups = by_launch(rows_of(HOSTS_BY_MESSAGES))
    counts = Counter(
        key[5].partition("(")[0] for key, side in groups.items()
        if key[5] != "native" and is_faster(side)
    )  # fmt: skip
    text = cause_of("emulated hosts, mpicoll", findings)
    cases = sum(key[5] == "native" for key in groups)
    assert f"blocking call in {counts['auto']} of {cases} cases" in text
    assert f"two levels does so in {counts['two_level']}." in text
    assert f"blocking calls in {counts['native_persistent']}." in text


def test_an_average_and_a_sum_run_the_same_algorithm(findings: list[Finding]) -> None:
    rows = rows_of("average")
    choices: dict[tuple[int, int], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        if (row["environment"], row["algorithm"], row["backend"]) == ("mpich", "auto", "mpi4py"):
            choices[row["ranks"], row["bytes_total"]][row["op"]].add(row["executed"])
    same = sum(names["sum"] == names["avg"] for names in choices.values())
    text = cause_of("an average takes", findings)
    assert f"same algorithm for both in {same} of {len(choices)} cases" in text


@pytest.mark.parametrize(
    ("text", "words"), [("1.50 ?", "1.50 (undecided)"), ("1.01 =", "1.01 (a tie)"), ("2.0", "2.0")]
)
def test_signs_are_words_in_sentences(text: str, words: str) -> None:
    assert in_words(text) == words and span([text]) == f"{words} to {words}"


def test_no_sign_of_the_page_has_another_meaning() -> None:
    text = (FOLDER / PAGE).read_text()
    assert "~" not in text and not re.search(r"\?\d", text)


def test_no_page_names_a_finding_by_its_number() -> None:
    """The numbers change with each new finding."""
    assert [page for page in PAGES if re.search(r"\b[Ff]indings? \d", page.read_text())] == []


# -- files --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_a_description_is_one(path: Path) -> None:
    assert path.stem in STUDIES and path.with_suffix(".parquet").exists()
    assert load(path).launches >= 6


def test_the_records_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.parquet")) < _MOST_BYTES


def test_other_studies_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="the published studies are libraries"):
        main([str(tmp_path / "another")], standalone_mode=False)
