"""What runs programs over host memory, compiled.

Buffers are C-contiguous; dtypes and operators are named as in `mpicoll.notation.elements`.
"""

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from typing_extensions import Buffer

# The numbers that Python and C share; the comments in the headers describe them.
COLUMNS: int
"""How many 64-bit integers make a row of a program's table: `Instruction` in ``program.h``."""
OPERANDS: int
COPY: int
FOLD: int
DIVIDE: int
RAISE: int
AWAIT: int
FETCH: int
VERIFY: int
CALL: int
POLL: int
CACHED: int
STREAMED: int
ADAPTIVE: int
ADAPTIVE_COPY: int
LONG_YIELD_NS: int
INPUT: int
OUTPUT: int
LAST_STATED: int
HAS_ENDED: int
UNDER_WAY: int
GROUP_NUMBERS: int
NO_CALL: int
PYTHON_CALL: int
PYTHON_ROUND: int
LINE_LENGTH: int
LINE_DIGEST: int
FLAT: int
INPUT_ROWS: int
OUTPUT_ROWS: int
ROWS: int
UNIT_BYTES: int
"""How many bytes a rank has in a channel: a head, and a ring of slots."""
MOST_MEMBERS: int
"""How many ranks a channel can have."""
FIRST_MADE: int
"""The communicators made of one that are served at once."""
FIRST_CALLS: int
"""The calls of any other one that MPI runs first."""
ONE_ROW: int
NO_ARRAY: int
"""Instead of the length of an array's first axis: it is one row; this rank gives and gets none."""
BCAST: int
GATHER: int
SCATTER: int
ALLGATHER: int
ALLTOALL: int
REDUCE: int

class Program:
    """A table of instructions over registers, and the loop that runs it: ``program.c``.

    Args:
        table: rows of `COLUMNS` 64-bit integers.
        registers: the addresses of the input, the output, and whatever else the rows name.
        op, dtype: of its folds; None where there are none.
        check: the row before which the ranks of a call compare what they call.
        light: it moves so little that it need not give Python's interpreter to other threads.
        heavy: it moves so much that a start leaves all of it to the progress thread.
        waits: a `RowWaits`: ``wait(program, row, errno)`` returns when what the row waits for has
            come, or raises; ``test(program, row)`` raises where it will never come;
            ``fail(program, row, error)`` takes the error of a callback, and may raise another.
        keep: kept alive.
        numbers: of its group, as `Mailbox.number` has them: a run first completes the call of the
            group that is under way.
        callbacks: of the rows `CALL`, which take the addresses of operands, and `POLL`, which
            return whether they are complete.
        arrays: what owns the memory of the input and the output. A call adds its arrays while it
            runs callbacks; after an error they stay.

    A run that an error has ended in its middle is the last: `run` raises RuntimeError from then on.

    Attributes:
        busy: `run` raises RuntimeError, as a run that was started has not been waited for.
        given: the progress thread runs it; or has, and nobody has asked since.
        sequence: the number of the run that is under way, or was the last.
        position: the next row; `length` between runs.

    Raises:
        ValueError: a row has no such code, register or callback, or no kernel serves it.
    """

    busy: bool
    given: bool
    sequence: int
    position: int
    length: int

    def __init__(
        self, table: Buffer, registers: Sequence[int], op: str | None, dtype: str | None, *,
        check: int, light: bool, heavy: bool, waits: Any, keep: object,
        numbers: Buffer | None = None, callbacks: tuple[Callable[..., object], ...] = (),
        arrays: list[Any] = ...,
    ) -> None: ...  # fmt: skip
    def run(self) -> None:
        """Run once."""

    def run_on(self, x_address: int, out_address: int, x: Any = ..., out: Any = ..., /) -> None:
        """Run once, with these addresses as the input and the output, and what owns them."""

    def free(self) -> None:
        """Run no more, and drop what it keeps alive, unless a run has failed in its middle."""

    def record(self, log: Any, call: int, /) -> None:
        """Record the runs from now on, but not those of `run_on`."""

    def start(self) -> bool:
        """Begin a run, and give it to the progress thread; whether it is complete already."""

    def test(self) -> bool:
        """Advance as far as is possible without waiting; whether the run is complete."""

    def wait(self) -> None:
        """Complete the run."""

    def stop(self) -> None:
        """Leave the run as it is: the progress thread must not go on with it."""

class Ring:
    """The rows of one rank: `mpicoll.flight.rows.Ring`."""

    def __init__(
        self, rows: Buffer, clock: Buffer, samples: Buffer, links: Buffer,
        totals: Buffer, locate: Callable[[CodeType, int], int],
        describe: Callable[[BaseException], int], by_processor: bool = ...,
    ) -> None: ...  # fmt: skip
    def close(self) -> None:
        """Write no more."""

class Log:
    """One group's calls in these rows: `mpicoll.flight.rows.Log`."""

    sequence: int

    def __init__(self, ring: Ring, group: int) -> None: ...
    def begin(self, call: int, /) -> int:
        """Begin the row of a call, and return its number; 0 within another call on this group."""

    def start(self, call: int, /) -> int:
        """The same of a call that goes on while its thread makes others."""

    def end(self, number: int, error: BaseException | None = ..., /) -> None:
        """End a row."""

    def recorded(
        self, call: int, function: Callable[..., Any], is_issued: bool = ...,
        place: Callable[[int], int] | tuple[type, Callable[..., Any]] = ...,
        argument: int = ..., /,
    ) -> Callable[..., Any]:  # fmt: skip
        """Return a function whose calls are recorded; with `is_issued` their beginnings alone.

        Args:
            place: takes bytes; of issued calls, a type of requests, and what waits for one.
        """

def uninterrupted(function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """Return what a function returns. Handlers of signals wait for its end, from its first wait on.

    Calls may be nested: the handlers run, and may raise, at the end of the outermost one.
    """

def postpone_handlers() -> None:
    """Have handlers of signals wait from here on for the end of the call that is open, if any."""

def prepare_channels(
    layout: tuple[Any, object], dtypes: tuple[tuple[str, str, Any], ...],
    ops: tuple[tuple[Any, str, str], ...], datatypes: tuple[tuple[Any, int], ...],
    in_place: object, datatype: object, op: object, learn: Callable[[Any], None] | None, /,
) -> object:  # fmt: skip
    """Return what channels of a library read.

    Args:
        layout: an array and its dtypes, as `PlanTable` takes `probe` and `exchange`.
        dtypes: of each its name, its kind, and an array of one element.
        ops: the operators of the library, each with its name here and the kinds of dtypes on which
            the library defines it.
        datatypes: the datatypes of the library, each with the place of the dtype that has its
            elements.
        in_place: stands instead of an input.
        datatype, op: the types of the datatypes and of the operators.
        learn: gives the layout of a datatype to `add_layout`, if it can.

    Raises:
        ValueError: there are too many operators or dtypes; as `PlanTable`.
    """

def place_handles(offset: int, nbytes: int, /) -> None:
    """Say where in their memory MPI's objects have their handle, and how many bytes it has."""

def keep_memory() -> None:
    """Have the allocator keep some megabytes of what the program frees, as with a channel."""

def read_buffers(
    forms: object, rank: int, size: int, pack: Callable[[Any, bool, bool, bool, int], Any],
    name: str, x: Any, out: Any, root: Any, /,
) -> tuple[Any, Any]:  # fmt: skip
    """Return the two buffers of a call of mpi4py as this rank gives them.

    Of memory without gaps the address, the bytes, the place of the dtype in `forms`, and the bytes
    of the blocks, or None; for other buffers what `pack` returns; ``MPI.IN_PLACE``; and None where
    this rank gives none.

    Args:
        pack: takes a buffer; whether it is received into, is folded, and has a count for each rank;
            and of how many blocks it has the count otherwise.

    Raises:
        ValueError: mpi4py has no such method, or the root is no rank.
    """

def add_layout(datatype: object, size: int, extent: int, digits: Any, packed: Any, /) -> None:
    """Have channels read buffers of a datatype of MPI's, until it is freed.

    Args:
        size: bytes of data in an element.
        extent: bytes from one element to the next.
        digits: of the places 0, 1, 2 and so on the lowest byte, then the next byte of all of them,
            as far as they have any.
        packed: what the datatype packs of each of these rows.
    """

def forget_layout(datatype: object, /) -> None:
    """Read no more buffers of a datatype, which is freed."""

def unit_is_closed(address: int, members: int, /) -> bool:
    """Return whether all members of the channel that has this unit have left it."""

def clear_unit(address: int, /) -> None:
    """Prepare a unit of `UNIT_BYTES` for a new channel."""

class Channel:
    """The collectives of one group whose ranks share memory, of any length: ``channel.h``.

    mpi4py calls it with name, x, out, op and root. With a sixth argument, True, the arrays are flat
    already, and the call returns True where the channel cannot run it.

    torch gives a call to `run` or `issue`, and beside these arguments which arrays are rows, one
    for each rank: `FLAT`, `INPUT_ROWS`, `OUTPUT_ROWS` or `ROWS`. Rows may be a list or tuple of
    arrays. Calls that are issued run in order, by a thread of the channel, or by whoever completes
    them first. All arrays stay alive and untouched until their call is complete.

    Args:
        forms: what `prepare_channels` has returned.
        units: the addresses of the units of all ranks, in this process.
        processes: of all ranks.
        slow: takes the five arguments where their form is not read here.
        library: takes them where the library is to serve the call.
        owner: ``owner.fail(peer, reason, detail)`` raises. The reason is ``left``, ``ended`` or
            ``deadline`` with the seconds of the wait, ``over`` after the channel has been closed,
            ``failed`` after an error has ended it, or
            ``different`` with the key and bytes of the peer's call, and of this rank's.
            ``owner.place(key, nbytes, shares)`` returns the place of a kind of call in the table
            of the recorder. A key is the collective, whether it moves objects, operator, dtype
            and root.
        keep: what the memory belongs to.
        progress: lets the library move its messages, about once a millisecond of a long wait.
        log: of the flight recorder; None where nothing is recorded.
        deadline: seconds of a wait; 0 for no limit.
        has_cores: each rank has a core of its own.
        shares_above, first_share_ranks: above so many bytes, and on so many ranks, each rank folds
            a share of an allreduce or a reduce.

    A call that an error has ended is the last: further calls raise by `owner`.

    Attributes:
        held: `run` and `issue` take no call, as Python is running one.
        issued, completed: how many calls; they complete in the order of issue.
        failed: the number of the last issued call that an error has ended; 0 before the first.
        waits_for: the rank that a call waits for; -1 for none.

    Raises:
        TypeError: a second time.
        ValueError: there are more than `MOST_MEMBERS` ranks, or not a unit and a process of each.
    """

    deadline: float
    held: bool
    issued: int
    completed: int
    failed: int
    waits_for: int

    def __init__(
        self, *, forms: object, units: tuple[int, ...], rank: int, processes: tuple[int, ...],
        slow: Callable[..., Any] | None, library: Callable[..., Any] | None,
        owner: object, keep: object, progress: Callable[[], object] | None, log: Log | None,
        deadline: float, has_cores: bool, shares_above: int, first_share_ranks: int,
    ) -> None: ...  # fmt: skip
    def __call__(
        self, name: str, x: Any, out: Any, op: Any, root: Any, is_flat: bool = ..., /
    ) -> bool | None:
        """Run a call.

        Raises:
            RuntimeError: another call of this channel is under way.
        """

    def exchange(
        self, collective: int, root: int, data: Buffer | Sequence[Buffer] | None, /
    ) -> list[bytes | None] | None:  # fmt: skip
        """Move bytes whose lengths only their senders know.

        Args:
            collective: `BCAST`, `GATHER`, `SCATTER`, `ALLGATHER`, `ALLTOALL`, or `REDUCE` for a
                level of a tree: ranks at a distance of `root` are pairs, whose second one sends.
            data: the bytes that this rank sends, or those for each rank; None where it sends none.

        Returns:
            The bytes of all ranks that send to this one, in rank order, with None for its own;
            None where no rank does.

        Raises:
            ValueError: there is no such collective or root, or not an item for each rank; as a
                call does.
        """

    def run(
        self, name: str, x: Any, out: Any, op: Any, root: int, counts: Any, algorithm: Any,
        rows: int, /,
    ) -> bool:  # fmt: skip
        """Run a call; False where Python has to: it is not read here, or others are under way."""

    def run_next(
        self, name: str, x: Any, out: Any, op: Any, root: int, counts: Any, algorithm: Any,
        rows: int, /,
    ) -> bool:  # fmt: skip
        """Run a call of Python's, after those that were issued; False where it is not read here."""

    def issue(
        self, name: str, x: Any, out: Any, op: Any, root: int, counts: Any, algorithm: Any,
        rows: int, /,
    ) -> int:  # fmt: skip
        """Have a call run in its turn, and return its number; 0 where Python has to run it."""

    def complete(self, number: int, /) -> None:
        """Return once so many calls are complete.

        What it raises has ended the call that was completed last.
        """

    def skip(self) -> None:
        """Count a call that the library serves. A rank that waits in it for this one raises."""

    def close(self) -> None:
        """Leave the channel. Its memory is used again once all ranks have left it."""

def fence() -> None:
    """Order this thread's loads and stores before and after it, as other ranks see them."""

def save_handler() -> None:
    """Save SIGUSR1's present handler, which the handler of `watch_signals` then calls, too."""

def watch_signals(memory: Buffer, descriptor: int, /) -> None:
    """Have signals that end this process leave their number and sender in memory.

    Args:
        memory: as `mpicoll.flight.layout.ENDING`, writable.
        descriptor: an eventfd that SIGUSR1 wakes, unless `sigqueue` has sent it; -1 for none.
    """

def unwatch_signals() -> None:
    """Leave signals as they were."""

def sleep_when_finalizing() -> None:
    """Have this thread sleep where C++ would end the process as the interpreter ends.

    To be called once the C++ library is loaded, before this thread calls it.
    """

class FirstCalls:
    """A method of a class of communicators, which counts its calls, and then changes the class.

    Args:
        method: MPI's own.
        member: of the class, the slot for the number of calls.
        most: calls of this class.
        following: the class after these.
    """

    def __init__(
        self, method: Callable[..., Any], member: Any, most: int, following: type, /
    ) -> None: ...
    def __call__(self, *arguments: Any, **named: Any) -> Any: ...

class Counted:
    """A call that is counted, so that another thread sees which is under way for how long."""

    oldest: int

    def __init__(self, function: Callable[[], Any], /) -> None: ...
    def __call__(self) -> Any: ...
    def comes(self, test: Callable[[], bool], yields: int, /) -> bool: ...

class PlanTable:
    """Finds the plan of a call by its arguments, and runs it; other calls are left to `slow`.

    Called with name, x, out, op, root, counts and algorithm.

    Args:
        probe: an array; arrays of its type, exactly, are read.
        exchange: DLPack's exchange table; for NumPy its dtypes, each with its itemsize and
            DLPack's code. None where no array is read.
        numbers: of the group, as `Mailbox.number` has them.
        slow: takes the seven arguments, and True where the ranks have found that they differ.
        give_up: takes a plan, or the channel, that has failed in the middle of a run, and the
            error.
        lines: for each rank the address of the line in which it publishes its digests; none where
            the ranks share no memory.
        stride: 64-bit words from that line to the one of the next call.
        wait: ``wait(rank, number, name)`` returns when a rank has published a digest, or raises.
        agree: ``agree(digest, name)`` compares calls among ranks that share no memory.
        describe: `mpicoll.backend.Arrays.describe`, for other arrays.
        log: of the flight recorder; without one nothing is recorded.

    Raises:
        ValueError: this version of NumPy or of DLPack is not known.
    """

    def __init__(
        self, probe: Any, exchange: object, numbers: Buffer, slow: Callable[..., Any],
        give_up: Callable[[Any, BaseException], object], *, lines: Sequence[int],
        stride: int = ..., rank: int = ...,
        wait: Callable[[int, int, str | None], object] | None = ..., keep: object = ...,
        agree: Callable[[int, str | None], bool] | None = ...,
        describe: Callable[[Any], tuple[int, int, int, tuple[int, ...]] | None] | None = ...,
        log: Log | None = ...,
    ) -> None: ...  # fmt: skip
    def __call__(
        self, name: str, x: Any, out: Any, op: Any, root: Any, counts: Any, algorithm: Any, /
    ) -> Any:
        """Run a call, after the one that is under way; collective.

        Code that runs in the wait of a call makes calls, too: a handler of a signal, for example.

        Raises:
            RuntimeError: the call that is under way cannot be completed first.
        """

    def agree(self, digest: int, /) -> bool:
        """Whether all ranks make the same call, which Python runs; collective."""

    def complete(self) -> None:
        """Complete the call that is under way; raises as a call does."""

    def add(
        self, given: tuple[Any, ...], runner: Program | Callable[[Any, Any], Any], digest: int,
        plan: object, place: int, has_output: bool = ...,
        make_output: Callable[[], Any] | None = ..., /,
    ) -> None:  # fmt: skip
        """Serve such calls by a program, or a function of x and out, from now on.

        Args:
            digest: what the other ranks publish of the same call.
            plan: what `forget` and `give_up` know it by.
            place: of a function, in the table of the flight recorder.
            has_output: of a program: this rank gets an array, which `make_output` makes where none
                was given.
        """

    def forget(self, plan: object, /) -> None:
        """Serve no call by a plan any more."""

def fold(op: str, dtype: str, out: Buffer, left: Buffer, right: Buffer, /) -> None:
    """Write left op right to `out`, which may be one of them.

    Raises:
        ValueError: the operator is not defined on the dtype, or the sizes differ.
    """

def target(name: str = ..., /) -> str:
    """Return which instructions run: avx512, avx2, neon or baseline; change them by name.

    Raises:
        ValueError: the processor lacks them.
    """

def simulate_messages(
    columns: tuple[Buffer, ...], began: Buffer, links: int, servers: int, latency: float,
    hold: float, beta: float, memory_alpha: float, memory_beta: float, hop: float,
    counts_ports_in_memory: bool, deadline: float, /,
) -> tuple[float, int, int, bool]:  # fmt: skip
    """Return the time of a schedule, a rank that waits for ever or -1, messages, and lateness.

    Args:
        columns: arrays of `mpicoll.costs.classes.Classes`, as `mpicoll.costs.events` lists them.
        began: when each rank begins its first round.
        deadline: seconds of the processor after which the simulation ends without a result.
    """
