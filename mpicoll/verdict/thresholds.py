"""The numbers that decide a verdict.

They are chosen so that a healthy job on a machine with more processes than cores is not blamed:
`python -m tests.verdict` counts the wrong verdicts of many launches.
"""

FEWEST_CALLS = 10
"""Calls of one place below which no rank is blamed: chance alone may make one rank come last."""
SMALLEST = 50_000
"""Nanoseconds: a rank that comes less late is not blamed. The system's scheduler and the order in
which ranks leave a call cause differences of some microseconds, and no sample resolves them."""
RELEVANT = 0.05
"""The share of a job's time that a cause must cost. Less is within the noise of most machines."""
RELEVANT_QUEUE = 0.08
"""The share of time without a core: the scheduler of a busy machine is unfair by up to 0.05."""
LONGER_QUEUE = 0.75
"""How much longer than the other ranks a blamed one must be without a core, as a part of their
time: where all ranks wait for cores, the scheduler favours some of them for seconds."""
INDEPENDENT = 40_000_000
"""Nanoseconds after which the scheduler of a busy machine may favour another rank."""
OUTLIER = 2.5
"""The factor by which an excess must exceed that of the next rank that is not late itself."""
EXPLAINS = 0.15
"""The part of the other ranks' running by which a rank must run or sleep longer to be the reason
for its waits for a core. Processes that share its core make its running longer by less."""
OF_PROCESS = 0.08
"""The share of the time that a rank waits longer, in which other threads of its process, or its
children, must run longer to be the reason: on a busy machine they, too, wait for a core."""
SLOWER = 1.15
"""The ratio of two medians of the arithmetic probe from which on a node counts as slower."""
MOVING = 0.2
"""The share of time that data must move before the verdict looks for slow links."""
SLOW_LINKS, SLOW_LINK = 1.4, 1.7
"""How many times longer than those of equal links the delays are, or the times for a byte, in the
mean over the readings: of all links of a host, and of a single link. Equal links differ by a
quarter, and one of many directions by half."""
FULL_LINK = 5000
"""Microseconds that data wait before a link without a peer, from which on it counts as full."""
UNEVEN = 1.5
"""The ratio of a rank's count to the median count from which on data counts as uneven."""
RELEVANT_STOP = 0.01
"""The share of a rank's time in which it was stopped. No healthy job is stopped: less suffices."""
UNFAIR = 3
"""How many times as long as it ran a rank must lack a core in a message, for its core to be late
and not the data: ranks that wait keep their cores busy, and share them."""
OWN_CORE = 0.16
"""The share of the job's time that a rank without a core must cost. If ranks outnumber the cores,
the scheduler favours some of them by less for seconds, and in messages it is an estimate whether a
rank waits for its core or for data."""
WAITS = 0.75
"""The share of its own time in messages that the cause of a blamed rank must reach, and how late it
comes: a rank that waits for longer itself does not keep the others waiting."""
IDLE = 0.05
"""The part of the work of the busiest rank below which a rank in messages only hands out work."""
DIRECT = 400_000
"""Nanoseconds that a rank runs or sleeps between two calls that follow each other directly: on a
busy machine, torch and Python take up to 300 us to return from one call and begin the next."""
MOSTLY = 0.7
"""The share of its calls in which a barrier must stand beside another call to be unneeded."""
