"""Make random calls on all ranks, and check every result.

    PYTHONPATH=. mpirun -n 2 python tests/support/random_calls.py -n 1000000 --seed 1

Methods, plans and started plans in any mixture: every collective, dtype and operator, sizes from
nothing to 100 KiB, in place or not, on new arrays or the same, by `auto`, native calls
and schedules. The first wrong result ends all ranks, and says which call of which seed it was.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from expect import affine, expected, input_shape, values
from run_collective import ROWS, UNEVEN, buffers, device, serves

from mpicoll import Collectives, Unavailable, Unsupported
from mpicoll.algorithms.registry import algorithms
from mpicoll.engine.plan import Plan
from mpicoll.notation.contract import COLLECTIVES
from mpicoll.notation.elements import DTYPES, OPS, itemsize, kind_of

CASES, VARIANTS = 48, 3
_RENEW = 100
"""Calls after which a case gives way to another."""
_SIZES = (0, 1, 2, 7, 8, 33, 256, 1000, 4096, 20_000, 65_536, 102_400)
_MOST_BYTES = 102_400


class WrongResult(AssertionError):
    """A result that is not what NumPy computes, or an input that has changed."""


@dataclass(eq=False)
class Case:
    """One kind of call, with inputs and what they must give."""

    name: str
    dtype: str
    op: Any
    root: int
    row: tuple[int, ...]
    counts: Any
    algorithm: str
    in_place: bool
    fresh: bool
    inputs: list[Any] = field(default_factory=list)
    wanted: list[Any] = field(default_factory=list)
    x: Any = None
    out: Any = None
    plan: Plan | None = None

    def __str__(self) -> str:
        op = self.op if isinstance(self.op, str) else self.op.__name__
        return (
            f"{self.name} of {self.dtype} {self.row}, op {op}, root {self.root}, counts "
            f"{self.counts}, {self.algorithm}, {'in place, ' * self.in_place}"
            f"{'new arrays' if self.fresh else 'the same arrays'}"
        )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the method, without its arrays."""
        what, given = COLLECTIVES[self.name], {"algorithm": self.algorithm}
        if what.reduces:
            given["op"] = self.op
        if what.rooted:
            given["root"] = self.root  # type: ignore[assignment]
        if self.counts is not None:
            given["counts"] = self.counts
        return given


class Player:
    """The calls of one seed, on one rank.

    Attributes:
        choose: the same on all ranks; `own` differs from rank to rank.
    """

    def __init__(self, c: Collectives, seed: int) -> None:
        self.c, self.seed, self.arrays = c, seed, c.transport.arrays
        self.choose, self.own = random.Random(seed), random.Random(f"{seed} {c.rank}")
        self.turn = 0
        self.cases = [self._case() for _ in range(CASES)]

    def play(self) -> None:
        """Make one call, or start a few plans and wait for them."""
        self.turn += 1
        if self.turn % _RENEW == 0:
            place = self.choose.randrange(CASES)
            if (plan := self.cases[place].plan) is not None:
                plan.free()
            self.cases[place] = self._case()
        how = self.choose.random()
        if how < 0.65:
            self._method(self.choose.choice(self.cases))
        elif how < 0.85:
            self._plan(self.choose.choice(self.cases))
        else:
            self._started(self.choose.sample(self.cases, self.choose.choice([1, 1, 2, 3])))

    def free(self) -> None:
        for case in self.cases:
            if case.plan is not None:
                case.plan.free()

    # -- cases ------------------------------------------------------------------------------

    def _case(self) -> Case:
        while True:
            case = self._any_case()
            try:
                self._fill(case)
                self._bind(case)
            except (Unavailable, Unsupported):
                continue
            return case

    def _any_case(self) -> Case:
        choose, c = self.choose, self.c
        name = choose.choice(list(COLLECTIVES))
        what = COLLECTIVES[name]
        dtypes = [each for each in DTYPES if each != "bfloat16" or c.backend == "torch"]
        if type(self.arrays.empty((0,), "uint8")).__module__.startswith("torch"):
            dtypes = list(DTYPES)
        dtype = choose.choice([d for d in dtypes if c.backend != "torch" or "uint" not in d
                               or d == "uint8"])  # fmt: skip
        op: Any = "sum"
        if what.reduces:
            fits = [op.name for op in OPS.values() if kind_of(dtype) in op.kinds]
            fits = [op for op in fits if op != "avg" or name not in ("scan", "exscan")]
            op = affine if dtype in ("int32", "int64") and choose.random() < 0.15 else (
                choose.choice(fits))  # fmt: skip
        elements = choose.choice(_SIZES) // itemsize(dtype)
        elements = choose.choice([elements, choose.randrange(elements + 1)])
        if what.unit != "vector":
            elements = min(elements, _MOST_BYTES // itemsize(dtype) // c.size)
        row = choose.choice([(elements,), (elements // 3, 3), ()])
        counts = None
        if name in UNEVEN and choose.random() < 0.25:
            row = choose.choice([(), (3,)])
            most = 1 + min(elements, 3000)
            draw = [[choose.randrange(most) for _ in range(c.size)] for _ in range(c.size)]
            counts = tuple(map(tuple, draw)) if name == "alltoall" else tuple(draw[0])
        in_place = name != "barrier" and choose.random() < 0.25
        if in_place:
            counts = None
            row = row or (1,) if name in ROWS else row
        kind = choose.random()
        algorithm = "auto"
        if kind > 0.85:
            algorithm = "native"
        elif kind > 0.4:
            found = choose.choice([each for each in algorithms(name) if serves(c, each)])
            way = choose.choice(["", *(f"@{each}" for each in c.transports)])
            algorithm = f"{found}{way}"
        root = choose.randrange(c.size) if what.rooted else 0
        return Case(name, dtype, op, root, row, counts, algorithm, in_place,
                    choose.random() < 0.5)  # fmt: skip

    def _fill(self, case: Case) -> None:
        """Make the inputs, and have NumPy compute the results."""
        if case.name == "barrier":
            return
        c = self.c
        shapes = [
            input_shape(case.name, c.size, rank, case.row, case.counts) for rank in range(c.size)
        ]
        for variant in range(VARIANTS):
            inputs = [
                values(s, case.dtype, rank + 31 * variant, case.op) for rank, s in enumerate(shapes)
            ]
            if case.op == "avg":  # so that the mean is exact
                inputs = [np.asarray(each * c.size, each.dtype) for each in inputs]
            wanted = expected(case.name, inputs, case.op, case.root, case.counts)[c.rank]
            case.inputs.append(inputs[c.rank])
            case.wanted.append(
                None if wanted is None
                else self.arrays.to_host(device(c, np.asarray(wanted), case.dtype)).copy()
            )  # fmt: skip

    def _place(self, case: Case) -> tuple[Any, Any]:
        if case.name == "barrier":
            return None, None
        own = np.asarray(case.inputs[0])
        if case.in_place:
            return buffers(self.c, case.name, own, case.dtype, case.counts)
        return device(self.c, own, case.dtype), None

    def _bind(self, case: Case) -> None:
        case.x, case.out = self._place(case)
        case.plan = self.c.plan(case.name, case.x, out=case.out, **{
            "op": "sum", **case.arguments()})  # fmt: skip

    # -- calls ------------------------------------------------------------------------------

    def _input(self, case: Case, x: Any) -> int:
        variant = self.choose.randrange(VARIANTS)
        if x is not None:
            self.arrays.from_host(x, case.inputs[variant])
        return variant

    def _method(self, case: Case) -> None:
        x, out = self._place(case) if case.fresh else (case.x, case.out)
        variant = self._input(case, x)
        if case.name == "barrier":
            self.c.barrier(algorithm=case.algorithm)
            return
        if case.fresh and not case.in_place and self.choose.random() < 0.3:
            assert case.plan is not None
            out = case.plan.out
        given, nothing = x, self.choose.random() < 0.3  # drawn alike on all ranks
        if (
            nothing
            and out is None
            and COLLECTIVES[case.name].from_root
            and self.c.rank != case.root
        ):
            given = None
        found = getattr(self.c, case.name)(given, out=out, **case.arguments())
        self._check(case, variant, x, found, "a method")

    def _plan(self, case: Case) -> None:
        assert case.plan is not None
        variant = self._input(case, case.x)
        case.plan.run()
        self._check(case, variant, case.x, case.plan.out, "a plan")

    def _started(self, cases: list[Case]) -> None:
        started = []
        for case in cases:
            assert case.plan is not None
            variant = self._input(case, case.x)
            started.append((case, variant, case.plan.start()))
        between = self.choose.choice([None, None, *self.cases])
        if between is not None and between not in cases:
            self._method(between)
        self.own.shuffle(started)
        for case, variant, request in started:
            for _ in range(self.own.randrange(3)):
                if request.test():
                    break
            request.wait()
            assert case.plan is not None
            self._check(case, variant, case.x, case.plan.out, f"{len(cases)} started plans")

    def _check(self, case: Case, variant: int, x: Any, out: Any, how: str) -> None:
        wanted = case.wanted[variant] if case.wanted else None
        if wanted is not None:
            found = self.arrays.to_host(out)
            # Libraries round the division of a complex number in different ways.
            is_rounded = case.op == "avg" and wanted.dtype.kind == "c"
            is_right = np.allclose if is_rounded else np.array_equal
            if found.shape != wanted.shape or not is_right(found, wanted):
                self._fail(case, how, f"{found!r} instead of {wanted!r}")
        if x is not None and self.turn % 16 == 0 and not case.in_place and not np.array_equal(
            self.arrays.to_host(x), self.arrays.to_host(device(self.c, case.inputs[variant],
                                                               case.dtype))
        ):  # fmt: skip
            self._fail(case, how, "its input has changed")

    def _fail(self, case: Case, how: str, what: str) -> None:
        raise WrongResult(
            f"call {self.turn} of seed {self.seed}, rank {self.c.rank} of {self.c.size} over "
            f"{self.c.backend}, {how}: {case}: {what}"
        )


def play(c: Collectives, turns: int, seed: int, every: float = 1e9) -> None:
    """Make calls on all ranks, and print how many there were every few seconds."""
    player, said = Player(c, seed), time.monotonic()
    for turn in range(1, turns + 1):
        try:
            player.play()
        except Exception as error:
            error.add_note(f"call {turn} of seed {seed} on rank {c.rank} of {c.size}")
            raise
        if c.rank == 0 and time.monotonic() - said > every:
            said = time.monotonic()
            sys.stdout.write(f"{turn} of {turns} calls, seed {seed}\n")
            sys.stdout.flush()
    player.free()


def main() -> None:
    """Make the calls that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-n", type=int, default=100_000, help="calls")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", choices=["mpi4py", "torch"], default="mpi4py")
    given = parser.parse_args()
    if given.backend == "torch":
        import torchcoll

        c = torchcoll.world()
    else:
        import mpicoll

        c = mpicoll.world()
    try:
        play(c, given.n, given.seed, every=10)
    except BaseException:
        import os
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # the launcher ends the others
    if c.rank == 0:
        sys.stdout.write(f"{given.n} calls of seed {given.seed} on {c.size} ranks: all right\n")
    c.free()


if __name__ == "__main__":
    main()
