"""The numbers that decide speed, in Python; ``engine/tuning.h`` has those of the C code.

Each states its unit, the evidence (machine, date and figure), and the gain over the next simpler
value. A number that gains less than 10 % on a second machine does not belong here. Machines:

- Zen 4: AMD EPYC, 2 cores of a virtual machine, one or two L3 caches of 32 MiB, MPICH 5.0.2.
- SPR: Intel Xeon Sapphire or Emerald Rapids, 2 cores of a virtual machine, 2 MiB of L2 each.
"""

from __future__ import annotations

# -- waiting -------------------------------------------------------------------------------------

YIELDS = 16
"""Looks at a word before the first yield, and yields between two looks at the other ranks.

Unit: looks, yields. Evidence: SPR, 2026-11-27, a yield takes 243 ns, and Python's look at the other
ranks microseconds. Gain: a third of the looks at a word in a long wait.
"""
FIRST_NAP, LAST_NAP = 50e-6, 1e-3
"""The first sleep between two looks, and the longest: each lasts the same share of the wait.

Unit: seconds. Evidence: SPR, 2026-11-27, `time.sleep` of 50 us takes 105. Gain: other work has the
core.
"""

POLL_SECONDS = 1.0
"""Time for which a rank only yields while it waits for messages of the library.

Unit: seconds. Evidence: none measured; a library moves its messages only while it is tested. Gain:
a large message loses no nap for each of its parts.
"""

SHARES_ABOVE, FIRST_SHARE_RANKS = 16 * 1024, 3
"""Above so many bytes, and on so many ranks, each rank folds a share of an allreduce or a reduce.

Unit: bytes, ranks. Evidence: Zen 4, 2026-11-29, 4 ranks on 2 cores, `reduce` of 64 KiB takes 11 us
without shares and 19 with them, so ranks that share cores fold no shares of a reduce. Gain: 40 %.
"""

LEVELS_FROM, LEVELS_AFTER = 256 * 1024, 8
"""Bytes of a call of several nodes from which levels run it, and the calls that MPI runs first.

Unit: bytes, calls. Evidence: Zen 4, 2026-11-29, emulated hosts, 1 Gbit/s, 2 or 3 hosts of 2 or 3
ranks: `Allreduce` of 128 KiB takes 0.96 to 1.15 times MPI's time, of 256 KiB 0.84 to 0.93; the
first one takes 1.3 ms more. Gain: 8 to 80 %.
"""

# -- programs and their memory -------------------------------------------------------------------

TILE = 64 * 1024
"""A step over slots of shared memory moves so many bytes at a time.

Unit: bytes. Evidence: Zen 4, 2026-11-22, `allreduce` of 16 MiB as `two_shot@symmetric` takes two
thirds of the time that it takes without tiles. Gain: 30 %.
"""
FETCHED_TILE = 512 * 1024
"""A step that reads private memory moves so many bytes at a time.

Unit: bytes. Evidence: SPR, 2026-11-27, `process_vm_readv` of 64 KiB takes 3.2 us, of 512 KiB 22.1,
and an L2 cache of 1 MiB holds both sides. Gain: 14 %.
"""
FETCHED_ROW = 64 * 1024
"""The smallest vector or row that CMA moves by default, where each message has one reader, and the
smallest message that readers read in the sender's array, where they can map it.

`mpicoll.tune` tries CMA from this number of total bytes on.

Unit: bytes. Evidence: through slots and by CMA, us: SPR, 2026-11-28, two ranks, rows of 128 KiB,
`alltoall` 31 and 17, `allgather` 27 and 14, `broadcast` 15 and 9; four ranks, `scatter` 78 and 39;
Zen 4, 2026-11-24, `alltoall` of rows of 1 MiB 86 and 106, of 2 MiB 382 and 334. Gain: 25 to 50 %
on SPR; rows of up to 1 MiB lose 20 % on Zen 4.
"""
WINDOW_SLOTS = 32
"""The most slots that the tiles of a large message pass through; a power of two.

Unit: slots. Evidence: Zen 4, 2026-11-24, `gather` of 16 MiB takes 683 us with 32 slots and 949
with 16. Gain: 28 %.
"""
WINDOW_BYTES = 3 << 20
"""All windows of a program together: where messages are many, each has fewer slots.

Unit: bytes. Evidence: SPR and Zen 4, 2026-11-24: 32 slots of 64 KiB and their flags fit. Gain: a
plan of 16 MiB holds 3 MiB a rank instead of 16.
"""
RING_BYTES = 5 << 19
"""The slots of an eager message that is not small fill so many bytes.

Unit: bytes. Evidence: Zen 4, one L3 cache, 2026-11-23, two slots and a ring: `allgather` of 64 KiB
5.2 and 2.7 us, `allreduce` of 64 KiB 9.3 and 4.5. Gain: 50 %, as readers' caches have given a slot
up before it is written again.
"""
RING_MESSAGE = 4 * 1024
"""The smallest run that has such a ring; smaller ones have `FEW_SLOTS`.

Unit: bytes. Evidence: none measured; smaller copies are written through the cache. Gain: memory.
"""
FEW_SLOTS = 4
"""Slots of a small message.

Unit: slots. Evidence: none measured. Gain: a root runs ahead of its readers.
"""
STREAMED_RESULTS = 128 << 20
"""A run that copies so many bytes writes its results past the cache.

Unit: bytes. Evidence: Zen 4, 2026-11-25, `broadcast` of 32 MiB takes 3.2 ms past its L3 cache and
4.3 through it, of 16 MiB 1.5 both; SPR, 2026-11-27, `allgather` of 16 MiB takes twice as long past
its L3 cache of 300 MiB. Gain: 25 % above, and 50 % below.
"""
LIGHT_RUN = 32 * 1024
"""A run that moves at most so many bytes keeps Python's interpreter.

Unit: bytes. Evidence: none measured here; an 8 B call takes 160 ns. Gain: two system locks a run.
"""
HEAVY_RUN = 4 << 20
"""From so many bytes on a start leaves all copies of a run to the progress thread.

Unit: bytes. Evidence: SPR, 2026-11-22, copies of 4 MiB take about a millisecond. Gain: `start`
returns at once.
"""

# -- GPUs ----------------------------------------------------------------------------------------

GPU_TILE = 8 << 20
"""A step between GPUs moves so many bytes at a time.

Unit: bytes. Evidence: computed, 2026-11-23: a link of 450 GB/s takes 19 us for it, and the host
about as long to enqueue it. Gain: a chain of ranks takes the time of one hop.
"""
STAGED_PIECE = 1 << 20
"""Host staging copies and sends so many bytes at a time.

Unit: bytes. Evidence: none measured. Gain: copies and messages overlap.
"""
