"""The verdict on jobs whose causes of lost time are known: each kind, and healthy jobs."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from operator import ne

import pytest
from synthetic_job import EPOCH, MILLISECOND, Work, dump, row, worked, world

from mpicoll.flight.reader import Dump, Link
from mpicoll.flight.records import Call
from mpicoll.verdict.findings import Finding, Kind
from mpicoll.verdict.judging import judge
from mpicoll.verdict.sentences import sentences

CALLS, SIZE, VICTIM = 60, 4, 2
HOSTS = ["host0", "host0", "host1", "host1"]


def job(plant: Callable[[int, Work], Work], victims: Sequence[int] = (VICTIM,), seed: int = 1,
        **options: object) -> list[Dump]:  # fmt: skip
    """Return a job whose ranks work for 2 ms with some noise; `plant` changes the victims' work."""
    draw = random.Random(seed)
    works = []
    for call in range(CALLS):
        ranks = [
            Work(2 + 0.1 * draw.random(), max(0.0, draw.gauss(0.3, 0.3)), 0.05 * draw.random())
            for _ in range(SIZE)
        ]
        works.append([
            plant(call, work) if rank in victims else work for rank, work in enumerate(ranks)
        ])  # fmt: skip
    return worked(works, **options)  # type: ignore[arg-type]


def longer(milliseconds: float, field: str = "running") -> Callable[[int, Work], Work]:
    return lambda call, work: work._replace(**{field: getattr(work, field) + milliseconds})


def nothing(call: int, work: Work) -> Work:
    return work


def first(dumps: list[Dump]) -> Finding | None:
    return next(iter(judge(dumps).findings), None)


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_job_is_not_blamed(seed: int) -> None:
    verdict = judge(job(nothing, seed=seed))
    assert verdict.findings == []
    assert next(sentences(verdict)).startswith("No rank, node or link stands out in 60 calls")


@pytest.mark.parametrize("milliseconds", [1, 5, 20])
def test_more_work_is_named(milliseconds: int) -> None:
    verdict = judge(job(longer(milliseconds)))
    [finding] = verdict.findings
    assert (finding.kind, finding.ranks) == (Kind.MORE_WORK, (VICTIM,))
    text = next(sentences(verdict))
    assert text.startswith("Rank 2 arrives ")
    assert "of 60 calls of allreduce at train.py:40" in text
    assert text.endswith("before the call: the program gives it more work.")


def test_the_share_of_waiting_is_that_of_the_other_ranks() -> None:
    dumps = worked([[Work(2.0), Work(2.0), Work(6.0), Work(2.0)]] * CALLS, moving=0.001)
    verdict = judge(dumps)
    [place] = verdict.observation.meetings
    assert verdict.observation.waiting[place] == pytest.approx(0.5, abs=0.02)
    assert verdict.findings[0].cost == pytest.approx(0.5, abs=0.02)
    assert verdict.findings[0].lateness == pytest.approx(4 * MILLISECOND, rel=0.01)


def test_a_core_that_is_shared_is_named() -> None:
    finding = first(job(longer(6, "queued")))
    assert finding and (finding.kind, finding.ranks) == (Kind.SHARED_CORE, (VICTIM,))


def test_a_core_that_is_shared_is_named_if_the_rank_loses_it_in_calls() -> None:
    """The data has come, but the rank has no core to leave the call: it begins its work late."""
    finding = first(job(longer(6, "coreless")))
    assert finding and (finding.kind, finding.ranks) == (Kind.SHARED_CORE, (VICTIM,))
    assert finding.lateness == pytest.approx(6 * MILLISECOND, rel=0.2)


def test_a_shared_core_is_named_although_all_ranks_lose_their_cores_now_and_then() -> None:
    """Then the time without a core varies, but the rank is late in all calls."""
    works = [
        [
            Work(queued=20.0 if rank == VICTIM else 2.0, coreless=60.0 if call // 6 % 3 == 1 else 0)
            for rank in range(SIZE)
        ]
        for call in range(CALLS)
    ]
    finding = first(worked(works))
    assert finding and (finding.kind, finding.ranks) == (Kind.SHARED_CORE, (VICTIM,))


def test_cores_that_all_ranks_lose_in_calls_are_not_blamed() -> None:
    draw = random.Random(1)
    works = [[Work(coreless=6 * draw.random()) for _ in range(SIZE)] for _ in range(CALLS)]
    assert judge(worked(works)).findings == []


def test_cores_of_a_node_that_are_shared_are_named() -> None:
    dumps = job(longer(6, "queued"), victims=(2, 3), hosts=HOSTS)
    finding = first(dumps)
    assert finding and (finding.kind, finding.ranks) == (Kind.SHARED_CORE, (2, 3))
    assert finding.host == "host1"
    assert "the cores of node host1 are shared" in next(sentences(judge(dumps)))


def test_work_explains_the_queue_that_comes_with_it() -> None:
    """On cores that are shared by all, a rank that works longer loses its core more often."""
    dumps = worked(
        [[Work(2, 4), Work(2, 5), Work(6, 14), Work(2, 4.5)], [Work(2, 5)] * 4] * (CALLS // 2)
    )
    assert [finding.kind for finding in judge(dumps).findings] == [Kind.MORE_WORK]


def test_sleep_is_named_and_says_what_it_may_be() -> None:
    dumps = job(longer(5, "asleep"))
    finding = first(dumps)
    assert finding and (finding.kind, finding.ranks) == (Kind.ASLEEP, (VICTIM,))
    _, doubt, *_ = sentences(judge(dumps))
    assert "look alike" in doubt


def test_memory_that_is_read_from_a_disk_is_told_from_other_sleep() -> None:
    dumps = [
        dump_of_rank._replace(samples=[
            sample._replace(faults=place) for place, sample in enumerate(dump_of_rank.samples)
        ])
        for dump_of_rank in job(longer(5, "asleep"))
    ]  # fmt: skip
    assert next(sentences(judge(dumps))).endswith("from a disk (major page faults).")


def test_an_excess_of_several_ranks_is_that_of_a_named_one() -> None:
    dumps = job(longer(6), victims=(2, 3), hosts=HOSTS)
    text = next(sentences(judge(dumps)))
    assert re.match(
        r"Ranks 2-3 \(all of node host1\) arrive .*; rank [23] runs 6.0 ms longer ", text
    )


def test_stops_are_named() -> None:
    dumps = job(lambda call, work: work._replace(asleep=50.0, stops=1) if call % 15 == 7 else work)
    [finding] = judge(dumps).findings
    assert (finding.kind, finding.ranks, finding.late_calls) == (Kind.STOPPED, (VICTIM,), 4)
    assert finding.lateness == pytest.approx(50 * MILLISECOND, rel=0.02)


def test_a_stop_of_the_whole_job_is_one_finding() -> None:
    def stop(call: int, work: Work) -> Work:
        return work._replace(asleep=50.0, stops=1) if call == 7 else work

    verdict = judge(job(stop, victims=range(SIZE)))
    [finding] = verdict.findings
    assert (finding.kind, finding.ranks, finding.place) == (Kind.STOPPED, (0, 1, 2, 3), None)
    assert re.match(
        r"Ranks 0-3 were stopped once \(by SIGSTOP or a debugger\) for (49|50) ms, 24 % of their ",
        next(sentences(verdict)),
    )


def test_a_slow_node_is_told_from_more_work() -> None:
    slow, equal = [10_000, 10_000, 15_000, 15_000], [10_000] * 4
    works = job(longer(1), victims=(2, 3), hosts=HOSTS, probes=slow)
    finding = first(works)
    assert finding and (finding.kind, finding.host) == (Kind.SLOW_NODE, "host1")
    assert " takes 1.5 times as long there " in next(sentences(judge(works)))
    works = job(longer(1), victims=(2, 3), hosts=HOSTS, probes=equal)
    finding = first(works)
    assert finding and (finding.kind, finding.host) == (Kind.MORE_WORK, "host1")
    assert any("memory of node host1" in text for text in sentences(judge(works)))


def test_uneven_data_is_told_from_more_work() -> None:
    finding = first(job(longer(6), signature="float64 (), counts (100, 100, 400, 100)"))
    assert finding and (finding.kind, finding.ranks) == (Kind.UNEVEN_DATA, (VICTIM,))
    assert finding.detail == "4"


def test_lateness_without_samples_is_unclear() -> None:
    dumps = [dump._replace(samples=[]) for dump in job(longer(5))]
    verdict = judge(dumps)
    [finding] = verdict.findings
    assert (finding.kind, finding.ranks) == (Kind.UNCLEAR, (VICTIM,))
    assert "more work, a shared core and sleep look alike" in [*sentences(verdict)][1]


@pytest.mark.parametrize(("queued", "kinds"), [(8.6, []), (13.6, []), (14.2, [Kind.SHARED_CORE])])
def test_a_queue_is_blamed_if_it_is_long_beside_those_of_all(
    queued: float, kinds: list[Kind]
) -> None:
    """Busy cores make a rank late in many calls of a healthy job, and favour some ranks."""
    dumps = worked([[Work(2, 8), Work(2, 8), Work(2, queued), Work(2, 8)]] * CALLS)
    assert [finding.kind for finding in judge(dumps).findings] == kinds


@pytest.mark.parametrize("share", [0.5, 0.8, 1.0])
def test_a_queue_is_blamed_if_its_rank_is_always_late(share: float) -> None:
    """The time without a core comes in few long pieces, whose size differs much."""
    draw = random.Random(3)
    queues = [8 + 12 * draw.random() ** 4 if call < share * CALLS else 4 for call in range(CALLS)]
    dumps = worked([[Work(2, 6), Work(2, 6), Work(2, queue), Work(2, 6)] for queue in queues])
    kinds = [finding.kind for finding in judge(dumps).findings]
    assert kinds == ([Kind.SHARED_CORE] if share == 1.0 else [])


@pytest.mark.parametrize("has_samples", [True, False])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_that_lose_a_core_in_turn_are_not_blamed(size: int, has_samples: bool) -> None:
    """The last rank of a call keeps its core, so each place has a late rank, and none is late."""
    works = [
        [Work(1, queued=2.0 if call % size == rank else 0.0) for rank in range(size)]
        for call in range(CALLS * size)
    ]
    dumps = worked(works, places=size)
    if not has_samples:
        dumps = [dump._replace(samples=[]) for dump in dumps]
    assert judge(dumps).findings == []


def test_a_shared_core_is_named_if_the_rank_is_late_at_one_of_several_places() -> None:
    works = [
        [Work(2, queued=6.0 if rank == VICTIM and call % 3 == 0 else 0.3) for rank in range(SIZE)]
        for call in range(3 * CALLS)
    ]
    finding = first(worked(works, places=3))
    assert finding and (finding.kind, finding.ranks) == (Kind.SHARED_CORE, (VICTIM,))


@pytest.mark.parametrize(("queued", "kinds"), [(2.0, []), (0.0, [Kind.MORE_WORK])])
@pytest.mark.parametrize("size", [2, 3])
def test_running_that_a_shared_core_makes_longer_is_no_work(
    size: int, queued: float, kinds: list[Kind]
) -> None:
    """Its caches are cold after each loss of the core."""
    works = [[Work(2.2 if rank == 1 else 2.0, queued) for rank in range(size)]] * CALLS
    assert [finding.kind for finding in judge(worked(works)).findings] == kinds


def test_ranks_whose_threads_hold_the_interpreter_in_turn_are_not_blamed() -> None:
    works = [
        [Work(1, asleep=5.0 if call % 2 == rank else 0.0) for rank in range(2)]
        for call in range(2 * CALLS)
    ]
    dumps = []
    for dump_of_rank in worked(works):
        threads, samples = 0, []
        for place, sample in enumerate(dump_of_rank.samples):
            is_held = place % 2 and place // 2 % 2 == dump_of_rank.rank
            threads += 5 * MILLISECOND if is_held else 0
            process = sample.running + threads
            samples.append(sample._replace(process=process, main=sample.running))
        dumps.append(dump_of_rank._replace(samples=samples))
    assert Kind.TURNS not in [finding.kind for finding in judge(dumps).findings]


@pytest.mark.parametrize("has_samples", [True, False])
@pytest.mark.parametrize("size", [3, 5])
def test_a_rank_that_is_early_makes_no_late_ranks_of_the_others(
    size: int, has_samples: bool
) -> None:
    dumps = worked([[Work(8.0 if rank else 2.0) for rank in range(size)]] * CALLS)
    if not has_samples:
        dumps = [dump._replace(samples=[]) for dump in dumps]
    assert judge(dumps).findings == []


def test_few_calls_are_not_judged() -> None:
    dumps = [dump._replace(entries=dump.entries[:5]) for dump in job(longer(20))]
    verdict = judge(dumps)
    assert verdict.findings == []
    assert "too few for a verdict" in next(sentences(verdict))


def test_a_rank_that_was_held_elsewhere_is_not_blamed() -> None:
    """Rank 1 waits for rank 0 in a call of both, and then all meet: rank 0 is late, not rank 1."""
    from mpicoll.flight.records import Group, Location

    pair, everyone = Group("pair", "pair", 0, "0-1"), world(4)
    rows: list[list[object]] = [[] for _ in range(4)]
    there = Location("train.py", 30, "step")
    for call in range(CALLS):
        begin = 10.0 * call
        for rank in range(2):
            start = begin + (5.0 if rank == 0 else 1.0)
            rows[rank].append(row(call + 1, start, begin + 5.01, group=pair, location=there,
                                  number=2 * call + 1))  # fmt: skip
            rows[rank].append(row(call + 1, begin + 5.05, begin + 5.1, group=everyone,
                                  number=2 * call + 2))  # fmt: skip
        for rank in (2, 3):
            rows[rank].append(row(call + 1, begin + 1.0, begin + 5.1, group=everyone,
                                  number=call + 1))  # fmt: skip
    dumps = [dump(rank, rows[rank]) for rank in range(4)]  # type: ignore[arg-type]
    assert {finding.ranks for finding in judge(dumps).findings} == {(0,)}


@pytest.mark.parametrize("beside", [-0.02, 0.02])
def test_a_barrier_beside_an_allreduce_is_unneeded(beside: float) -> None:
    group, rows = world(SIZE), [list[object]() for _ in range(SIZE)]
    for call in range(CALLS):
        for rank in range(SIZE):
            at = 10.0 * call + 0.01 * (rank + call % 3)
            calls = [("allreduce", at), ("barrier", at + beside)]
            for place, (name, start) in enumerate(sorted(calls, key=lambda pair: pair[1]), 1):
                number = 2 * call + place
                rows[rank].append(row(number, start, start + 0.01, group=group, collective=name))
    [finding] = judge([dump(rank, rows[rank]) for rank in range(SIZE)]).findings  # type: ignore[arg-type]
    assert finding.kind is Kind.UNNEEDED_CALL and finding.place
    assert finding.place.collective == "barrier"


def test_a_barrier_with_work_around_it_is_needed() -> None:
    assert judge(job(nothing, collective="barrier")).findings == []


def with_links(
    dumps: list[Dump], rates: dict[int, float], linked: Callable[[int, int], bool] = ne
) -> list[Dump]:
    """Add connections between hosts; `rates` in bytes per microsecond by the host's number.

    A host shares its rate among its links, with 100 kB in flight on each.
    """
    hosts = range(len(dumps))
    degrees = [sum(linked(host, peer) for peer in hosts) for host in hosts]
    with_readings = []
    for dump_of_rank in dumps:
        host = dump_of_rank.rank
        links = []
        for peer in filter(lambda peer: linked(host, peer), hosts):
            rate = min(rates.get(end, 100.0) / degrees[end] for end in (host, peer))
            links += [
                Link(
                    number=1, at=EPOCH + time * MILLISECOND,
                    local=f"10.0.0.{host}", local_port=1000 + peer,
                    peer=f"10.0.0.{peer}", peer_port=2000 + host, sent=time * 10_000,
                    busy=int(time * 10_000 / rate), rate=0, retransmitted=0,
                    rtt=int(100_000 / rate) + (time + peer) % 7, rtt_min=9,
                )
                for time in range(0, 8000, 1000)
            ]  # fmt: skip
        process = dump_of_rank.process._replace(host=f"host{host}")
        with_readings.append(dump_of_rank._replace(process=process, links=links))
    return with_readings


def is_neighbour(host: int, peer: int) -> bool:
    return abs(host - peer) == 1


def moving_data(size: int) -> list[Dump]:
    return worked([[Work() for _ in range(size)]] * CALLS, moving=20.0)


@pytest.mark.parametrize("rate", [10.0, 50.0])
@pytest.mark.parametrize("size", [3, 4])
def test_a_host_with_slow_links_is_named(size: int, rate: float) -> None:
    verdict = judge(with_links(moving_data(size), {size - 1: rate}))
    [finding] = verdict.findings
    assert (finding.kind, finding.host) == (Kind.SLOW_LINK, f"host{size - 1}")
    assert next(sentences(verdict)).startswith(f"The link of node host{size - 1} moves ")


@pytest.mark.parametrize(("slow", "host", "link"), [(3, "", {2, 3}), (1, "host1", {0, 1})])
@pytest.mark.parametrize("rate", [10.0, 20.0])
def test_links_of_a_chain_are_compared_with_those_at_like_places(
    slow: int, host: str, link: set[int], rate: float
) -> None:
    [finding] = judge(with_links(moving_data(4), {slow: rate}, is_neighbour)).findings
    assert (finding.kind, finding.host) == (Kind.SLOW_LINK, host)
    assert {*finding.link} == {f"host{number}" for number in link}


@pytest.mark.parametrize("rates", [{}, {1: 100.0}, dict.fromkeys(range(4), 1000.0)])
@pytest.mark.parametrize("linked", [ne, is_neighbour])
def test_equal_links_are_not_blamed(
    rates: dict[int, float], linked: Callable[[int, int], bool]
) -> None:
    finding = first(with_links(moving_data(4), rates, linked))
    assert finding and finding.kind is Kind.DATA_MOVEMENT


@pytest.mark.parametrize(("rate", "is_full"), [(10.0, True), (1000.0, False)])
@pytest.mark.parametrize("size", [2, 3])
def test_a_full_link_without_a_peer_is_told_and_not_blamed(
    size: int, rate: float, is_full: bool
) -> None:
    verdict = judge(with_links(moving_data(size), {1: rate}, is_neighbour))
    [finding] = verdict.findings
    assert finding.kind is Kind.DATA_MOVEMENT
    text = next(sentences(verdict))
    assert text.startswith("No rank is late: ")
    assert (" MB/s and is full: data wait " in text) is is_full


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("every", [10, 20])
def test_rare_but_expensive_lateness_is_named_with_its_frequency(every: int, size: int) -> None:
    works = [
        [Work(42.0 if rank == 1 and call % every == 0 else 2.0) for rank in range(size)]
        for call in range(400)
    ]
    verdict = judge(worked(works))
    [finding] = verdict.findings
    assert (finding.kind, finding.ranks) == (Kind.MORE_WORK, (1,))
    assert finding.lateness == pytest.approx(40 * MILLISECOND, rel=0.01)
    text = next(sentences(verdict))
    assert re.search(rf"arrives 40 ms late in {100 // every}(\.0)? % of 400 calls", text)
    assert "longer before the call on average: the program" in text


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("noise", [0.5, 3.0])
def test_frequent_noise_does_not_hide_the_frequency_of_long_lateness(
    noise: float, size: int
) -> None:
    draw = random.Random(1)
    works = []
    for call in range(400):
        ranks = [Work(2.0 + noise * (draw.random() < 0.3)) for _ in range(size)]
        ranks[1] = Work(42.0) if call % 20 == 0 else ranks[1]
        works.append(ranks)
    [finding] = judge(worked(works)).findings
    assert (finding.kind, finding.ranks, finding.late_calls) == (Kind.MORE_WORK, (1,), 20)
    assert finding.lateness == pytest.approx(40 * MILLISECOND, rel=0.1)


def test_the_kind_is_that_of_the_largest_excess() -> None:
    works = [[Work(2), Work(3.04, asleep=1.67), Work(2), Work(2)]] * CALLS
    finding = first(worked(works))
    assert finding and (finding.kind, finding.ranks) == (Kind.ASLEEP, (1,))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("calls", "size"), [(48, 2), (48, 3), (200, 4)])
def test_equal_noise_is_not_blamed(calls: int, size: int, seed: int) -> None:
    draw = random.Random(seed)
    works = [[Work(draw.expovariate(0.25)) for _ in range(size)] for _ in range(calls)]
    verdict = judge(worked(works))
    assert verdict.findings == []
    assert "stands out" in next(sentences(verdict))


@pytest.mark.parametrize("lost", [0, 11])
@pytest.mark.parametrize("places", [1, 5])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_that_take_turns_are_said_to(size: int, places: int, lost: int) -> None:
    """Also between other calls, and if the rows of some calls are lost."""
    works = [
        [Work(7.0 if call % places == 0 and call // places % size == rank else 2.0)
         for rank in range(size)]
        for call in range(80 * places)
    ]  # fmt: skip
    dumps = worked(works, places=places)
    begin, end = 30 * places, (30 + lost) * places
    dumps = [dump._replace(entries=dump.entries[:begin] + dump.entries[end:]) for dump in dumps]
    verdict = judge(dumps)
    [finding] = verdict.findings
    assert (finding.kind, finding.ranks) == (Kind.TURNS, tuple(range(size)))
    assert finding.lateness == pytest.approx(5 * MILLISECOND, rel=0.01)
    text = f"take turns: in {80 - lost} calls of allreduce at train.py:"
    assert text in next(sentences(verdict))


@pytest.mark.parametrize("missing", [0, 60, 160])
def test_ranks_that_take_turns_are_said_to_although_samples_of_a_rank_are_missing(
    missing: int,
) -> None:
    works = [[Work(7.0 if call % 3 == rank else 2.0) for rank in range(3)] for call in range(80)]
    first_dump, *dumps = worked(works)
    first_dump = first_dump._replace(samples=first_dump.samples[missing:])
    [finding] = judge([first_dump, *dumps]).findings
    assert (finding.kind, finding.ranks) == (Kind.TURNS, (0, 1, 2))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_that_are_late_at_random_take_no_turns(size: int, seed: int) -> None:
    draw = random.Random(seed)
    works = []
    for _ in range(200):
        late = draw.randrange(size)
        works.append([Work(7.0 if rank == late else 2.0) for rank in range(size)])
    assert judge(worked(works)).findings == []


def running_beside(dumps: list[Dump], field: str, victim: int, per_call: float) -> list[Dump]:
    """Let other threads or children of one rank run, so many milliseconds before each call."""
    changed = []
    for dump_of_rank in dumps:
        samples = []
        for place, sample in enumerate(dump_of_rank.samples):
            beside = round(per_call * MILLISECOND * ((place + 1) // 2))
            beside = beside if dump_of_rank.rank == victim else 0
            process = sample.running + (beside if field == "process" else 0)
            sample = sample._replace(process=process, main=sample.running)
            samples.append(sample._replace(children=beside) if field == "children" else sample)
        changed.append(dump_of_rank._replace(samples=samples))
    return changed


@pytest.mark.parametrize(
    ("field", "kind"), [("process", Kind.OWN_THREAD), ("children", Kind.CHILD_PROCESS)]
)
@pytest.mark.parametrize("activity", ["asleep", "queued"])
def test_the_threads_and_children_of_a_rank_are_told_from_others(
    activity: str, field: str, kind: Kind
) -> None:
    works = job(longer(6, activity))
    assert first(works).kind in (Kind.ASLEEP, Kind.SHARED_CORE)  # type: ignore[union-attr]
    finding = first(running_beside(works, field, VICTIM, 5.0))
    assert finding and (finding.kind, finding.ranks) == (kind, (VICTIM,))


def test_the_running_of_the_first_thread_counts_for_a_thread_that_makes_the_calls() -> None:
    """As in torch: the forward pass runs in one thread, and the backward pass makes the calls."""
    dumps = job(longer(6, "asleep"))
    changed = []
    for dump_of_rank in dumps:
        main, samples = 0, []
        for place, sample in enumerate(dump_of_rank.samples):
            main += 6 * MILLISECOND if place % 2 and dump_of_rank.rank == VICTIM else 0
            samples.append(sample._replace(main=main + 1, process=main + 1 + sample.running))
        changed.append(dump_of_rank._replace(samples=samples))
    finding = first(changed)
    assert finding and (finding.kind, finding.ranks) == (Kind.MORE_WORK, (VICTIM,))


@pytest.mark.parametrize("amounts", [(100, 400), (400, 100)], ids=["received", "sent"])
@pytest.mark.parametrize("size", [2, 4])
def test_data_that_is_sent_or_received_is_uneven(size: int, amounts: tuple[int, int]) -> None:
    changed = []
    works = [[Work(8.0 if rank == size // 2 else 2.0) for rank in range(size)]] * CALLS
    for dump_of_rank in worked(works):
        sent, received = amounts if dump_of_rank.rank == size // 2 else (100, 100)
        call = Call("alltoall", f"sends {sent} bytes, receives {received} bytes")
        entries = [entry._replace(call=call) for entry in dump_of_rank.entries]
        changed.append(dump_of_rank._replace(entries=entries))
    finding = first(changed)
    assert finding and (finding.kind, finding.ranks) == (Kind.UNEVEN_DATA, (size // 2,))
    assert finding.detail == "4"


def test_calls_with_objects_are_no_data_movement() -> None:
    dumps = job(nothing, moving=20.0, signature="objects, up to 128K")
    [finding] = judge(dumps).findings
    assert finding.kind is Kind.OBJECTS


def test_the_time_of_several_threads_is_no_more_than_that_of_the_job() -> None:
    """Two threads of each rank have samples, and each is out of calls half of the time."""
    dumps = []
    for dump_of_rank in job(nothing):
        again = [sample._replace(thread=2) for sample in dump_of_rank.samples]
        dumps.append(dump_of_rank._replace(samples=[*dump_of_rank.samples, *again]))
    observation = judge(dumps).observation
    for rank, activity in observation.activity.items():
        total = activity.running + activity.queued + activity.asleep
        assert total <= observation.observed[rank]
