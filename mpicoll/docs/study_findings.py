"""The findings of the published study, computed from its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from mpicoll.docs.study_algorithms import (
    find_average,
    find_forms,
    find_over_messages,
    find_over_shared_memory,
    find_shapes,
)
from mpicoll.docs.study_evidence import (
    ALGORITHMS,
    AVERAGE,
    FOUR_HOSTS,
    HOSTS_BY_MESSAGES,
    LIBRARIES,
    PAGE_FAULTS,
    PERSISTENT,
    RELEASE_GATHER,
    ROUNDS,
    SETTINGS,
    SHARED_MEMORY,
    STUDIES,
    TWO_HOSTS,
    Finding,
    Published,
    table,
)
from mpicoll.docs.study_libraries import find_fastest, find_native_calls, find_thread_levels
from mpicoll.docs.study_networks import find_backends, find_hosts, find_network
from mpicoll.records.lines import CaseRecord
from mpicoll.records.reading import only


def all_findings(studies: Mapping[str, Published]) -> list[Finding]:
    """Return the findings in their order."""
    libraries, algorithms = studies[LIBRARIES], studies[ALGORITHMS]
    return [
        find_fastest(libraries, algorithms),
        find_over_shared_memory(studies[SHARED_MEMORY]),
        find_over_messages(algorithms, studies[ROUNDS]),
        _find_wrong_results(studies),
        find_native_calls(libraries, studies[PERSISTENT], studies[SETTINGS]),
        find_thread_levels(libraries, studies[RELEASE_GATHER]),
        find_forms(algorithms, studies[PAGE_FAULTS]),
        find_shapes(algorithms, studies[ROUNDS]),
        find_average(studies[AVERAGE]),
        find_backends(algorithms, studies[TWO_HOSTS]),
        find_hosts(studies[TWO_HOSTS], studies[FOUR_HOSTS], studies[HOSTS_BY_MESSAGES]),
        find_network(studies[TWO_HOSTS]),
    ]


def _find_wrong_results(studies: Mapping[str, Published]) -> Finding:
    rows, totals = [], Counter[str]()
    for name, published in studies.items():
        cases = only(CaseRecord, published.records)
        counts = Counter(
            "right" if case.correct else "wrong" if case.correct is False else "not run"
            for case in cases
        )
        launches = len({case.run.id for case in cases})
        totals.update(counts)
        rows.append(
            [name, str(launches), *(str(counts[key]) for key in ("right", "wrong", "not run"))]
        )
    wrong = f"{totals['wrong']} were" if totals["wrong"] else "none was"
    return Finding(
        f"Each case was checked after timing, on the buffers that were timed: of "
        f"{totals['right'] + totals['wrong']} results, {wrong} wrong.",
        table(["study", "launches", "right", "wrong", "not offered by the library"], rows),
        "One check of each case in each launch, with all ranks. Inputs depend on rank and index, "
        "so a block from the wrong rank or place shows. Outputs are overwritten before each check.",
        "float32, with values whose sums are exact: rounding was not tested.",
        STUDIES,
    )
