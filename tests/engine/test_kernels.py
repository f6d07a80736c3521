"""The compiled kernels against NumPy's and torch's operators, and copies byte by byte."""

from functools import cache, reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_rows import address, place, program, row

from mpicoll.engine import _compiled as compiled
from mpicoll.engine.compiled import CACHED, COPY, DIVIDE, FOLD, STREAMED
from mpicoll.memory.numpy_arrays import UFUNCS, NumpyArrays
from mpicoll.notation.elements import DTYPES, OPS, itemsize, kind_of

FOLDS = [(op.name, dtype) for op in OPS.values() for dtype in DTYPES if kind_of(dtype) in op.kinds]
UNDEFINED = [(op, dtype) for op in OPS for dtype in DTYPES if (op, dtype) not in FOLDS]
GUARD = 0xA5
LARGE = 1 << 18  # more than what is written past the caches
LENGTHS = [*range(68), *range(124, 134), *range(252, 301, 3)]
"""Every remainder of a vector of 64 bytes, and some after one or several vectors."""
RANDOM = np.frombuffer(np.random.default_rng(0).bytes(LARGE + 4096), np.uint8)


def runs(name):
    best = compiled.target()
    try:
        compiled.target(name)
    except ValueError:
        return False
    compiled.target(best)
    return True


BEST, *OTHERS = filter(runs, ["avx512", "avx2", "neon", "baseline"])
MORE = [pytest.param(each, marks=pytest.mark.exhaustive) for each in OTHERS]


@pytest.fixture(params=[BEST, *MORE])
def target(request):
    best = compiled.target()
    yield compiled.target(request.param)
    compiled.target(best)


def area(count, dtype, offset):
    """Return the bytes of `count` elements, `offset` by 64 the address, and those around."""
    nbytes = count * itemsize(dtype)
    memory = np.full(nbytes + 256, GUARD, np.uint8)
    start = 64 + (offset - memory.ctypes.data) % 64
    return memory[start : start + nbytes], memory


def values(count, dtype, seed):
    """Return bytes of random elements: any bits, everyday numbers and the corners of the dtype."""
    size = itemsize(dtype)
    start = seed % 1009 * size
    return pool(dtype)[start : start + count * size].copy()


@cache
def pool(dtype, count=11_000):
    random = np.random.default_rng(DTYPES.index(dtype))
    if dtype == "bool":
        return random.integers(0, 2, count, np.uint8)
    if dtype in ("complex64", "complex128"):
        return pool("float32" if dtype == "complex64" else "float64", 2 * count)
    kind = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    x = np.frombuffer(random.bytes(count * kind.itemsize), kind).copy()
    if kind.kind == "f":
        everyday = random.random(count) < 0.5
        x[everyday] = random.normal(size=everyday.sum())
        corners = [np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(kind).max, np.finfo(kind).tiny]
    elif dtype == "bfloat16":
        everyday = random.random(count) < 0.5
        x[everyday] = random.normal(size=everyday.sum()).astype("f4").view("u4") >> 16
        corners = [0x7FC0, 0x7F80, 0xFF80, 0, 0x8000, 0x7F7F, 1]
    else:
        corners = [np.iinfo(kind).min, np.iinfo(kind).max, 0, 1]
    placed = random.random(count) < 0.2
    x[placed] = random.choice(np.array(corners, kind), placed.sum())
    return x.view(np.uint8)


def folded(op, dtype, left, right):
    """Return the bytes of NumPy's or torch's fold of two arrays of bytes."""
    left, right = left.copy(), right.copy()
    if dtype == "bfloat16":
        torch = pytest.importorskip("torch", reason="only torch has bfloat16")
        function = {
            "sum": torch.add, "avg": torch.add, "prod": torch.mul,
            "min": torch.minimum, "max": torch.maximum,
        }[op]  # fmt: skip
        x, y = (
            torch.from_numpy(each.view(np.int16)).view(torch.bfloat16) for each in (left, right)
        )
        return function(x, y).view(torch.int16).numpy().view(np.uint8)
    x, y = left.view(dtype), right.view(dtype)
    with np.errstate(all="ignore"):
        if op == "prod" and kind_of(dtype) == "c":
            # The plain formula; NumPy fuses its multiplications and additions.
            product = np.empty_like(x)
            product.real = x.real * y.real - x.imag * y.imag
            product.imag = x.real * y.imag + x.imag * y.real
            return product.view(np.uint8)
        return getattr(np, UFUNCS[op])(x, y).astype(dtype).view(np.uint8)


def parts(x, dtype):
    """Return the reals of an array of bytes."""
    if dtype == "bfloat16":
        return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    real = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    return x.view(real)


def assert_same(got, expected, dtype, *, signed_zeros=True):
    got, expected = parts(got.copy(), dtype), parts(expected, dtype)
    np.testing.assert_array_equal(got, expected)
    if signed_zeros and got.dtype.kind == "f":
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(expected[number]))


@pytest.mark.parametrize(("op", "dtype"), FOLDS)
def test_folds_as_numpy_and_torch(op, dtype, target):
    for count in LENGTHS:
        (left, _), (right, _), (apart, around) = (
            area(count, dtype, offset) for offset in (7 * count, 11 * count + 1, 5 * count + 3)
        )
        left[:], right[:] = values(count, dtype, 3 * count), values(count, dtype, 7 * count + 500)
        expected = folded(op, dtype, left, right)
        out = (apart, left, right)[count % 3]
        compiled.fold(op, dtype, out, left, right)
        # Of -0.0 and 0.0 the lesser is either.
        assert_same(out, expected, dtype, signed_zeros=op not in ("min", "max"))
        start = offset_of(apart, around)
        assert (around[:start] == GUARD).all()
        assert (around[start + apart.size :] == GUARD).all()


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_no_order_of_folds_changes_an_extreme(op, dtype, target):
    """As IEEE 754-2019 has it, in C and in NumPy: -0.0 is less than 0.0, and NaN stays."""
    corners = np.array([-1.0, -0.0, 0.0, 1.0, np.nan], dtype)
    left, right = (each.ravel() for each in np.meshgrid(corners, corners))
    both = np.sort(np.stack([left, right]), axis=0)  # NaN last
    lesser_zero = np.signbit(left) & np.signbit(right)
    if op == "min":
        lesser_zero = np.signbit(left) | np.signbit(right)
    expected = np.where(np.isnan(both[1]), both[1], both[int(op == "max")])
    zeros = (left == 0) & (right == 0)
    expected[zeros] = np.where(lesser_zero[zeros], -0.0, 0.0)
    for x, y in ((left, right), (right, left)):
        out, closed = np.empty_like(x), np.empty_like(x)
        compiled.fold(op, dtype, out, x, y)
        NumpyArrays().folder(OPS[op], x, y, closed)()
        many = np.empty_like(x)
        fold_many(op, dtype, many, (x, y, x))
        number = ~np.isnan(expected)
        for found in (out, closed, many):
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(expected[number]))


def offset_of(part, whole):
    return part.ctypes.data - whole.ctypes.data


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_products_are_near_numpys(dtype, target):
    random = np.random.default_rng(0)
    x, y = (
        (random.normal(size=999) + 1j * random.normal(size=999)).astype(dtype) for _ in range(2)
    )
    out = np.empty_like(x)
    compiled.fold("prod", dtype, out.view(np.uint8), x.view(np.uint8), y.view(np.uint8))
    assert (abs(out - x * y) <= 4 * np.finfo(dtype).eps * abs(x) * abs(y)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["sum", "prod", "max"])
def test_every_half_with_some_others(op, dtype, target):
    every = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
    for other in (0x0000, 0x0001, 0x03FF, 0x3C00, 0x3F80, 0x1400, 0x7BFF, 0xB555, 0xFC00, 0x7F7F):
        right = np.full(1 << 16, other, np.uint16).view(np.uint8)
        out = np.empty_like(every)
        compiled.fold(op, dtype, out, every, right)
        assert_same(out, folded(op, dtype, every, right), dtype, signed_zeros=op != "max")


@pytest.mark.parametrize(("op", "dtype"), UNDEFINED)
def test_undefined_folds_are_refused(op, dtype):
    x = np.zeros(16, np.uint8)
    with pytest.raises(ValueError, match=f"'{op}' is not defined on '{dtype}'"):
        compiled.fold(op, dtype, x, x, x)
    with pytest.raises(ValueError, match="row 0 needs a kernel"):
        fold_many(op, dtype, x, (x, x))


@pytest.mark.parametrize(("out", "left", "right"), [(8, 8, 4), (8, 12, 8), (6, 6, 6)])
def test_sizes_must_agree(out, left, right):
    text = f"operands have {left} and {right} bytes, and out {out}, not equal numbers of 'float32'"
    with pytest.raises(ValueError, match=text):
        compiled.fold("sum", "float32", bytearray(out), bytes(left), bytes(right))


def fold_many(op, dtype, out, operands):
    """Fold operands in their order, as the rows of a program do that are joined."""
    count, more = out.nbytes // itemsize(dtype), range(3, len(operands) + 1)
    rows = [row(FOLD, place(0), place(1), place(2), count=count, extra=len(more))]
    rows += [row(FOLD, place(0), place(0), place(operand), count=count) for operand in more]
    registers = [address(x) for x in (out, *operands)]
    program(rows, registers=registers, op=op, dtype=dtype).run()


@pytest.mark.parametrize(("op", "dtype"), FOLDS)
@settings(max_examples=settings().max_examples // 5)
@given(
    many=st.integers(2, 9),
    count=st.integers(0, 300) | st.integers(4090, 4102) | st.integers(0, 9000),
    place=st.integers(-1, 8),
    seed=st.integers(0, 99),
)
def test_many_fold_in_their_order(op, dtype, many, count, place, seed):
    operands = [values(count, dtype, seed + 101 * k) for k in range(many)]
    expected = reduce(lambda left, right: fold(op, dtype, left, right), operands).copy()
    # `out` is apart, or one of the operands.
    out = operands[place] if 0 <= place < many else np.empty_like(operands[0])
    fold_many(op, dtype, out, operands)
    np.testing.assert_array_equal(out, expected)


def fold(op, dtype, left, right):
    out = np.empty_like(left)
    compiled.fold(op, dtype, out, left, right)
    return out


@pytest.mark.parametrize("dtype", [each for each in DTYPES if kind_of(each) in "fc"])
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 4096, 65537])
def test_divides_as_numpy_and_torch(dtype, divisor, target):
    for count in LENGTHS:
        x, _ = area(count, dtype, 3 * count)
        x[:] = values(count, dtype, count)
        numbers = parts(x.copy(), dtype)
        with np.errstate(all="ignore"):
            if dtype == "float16":
                expected = (numbers.astype("float32") / np.float32(divisor)).astype("float16")
            else:
                expected = numbers / numbers.dtype.type(divisor)
        divide(dtype, x, divisor)
        if dtype == "bfloat16":
            torch = pytest.importorskip("torch", reason="only torch has bfloat16")
            expected = torch.from_numpy(expected).bfloat16().float().numpy()
        np.testing.assert_array_equal(parts(x.copy(), dtype), expected)


@pytest.mark.parametrize("dtype", [each for each in DTYPES if kind_of(each) not in "fc"])
def test_means_of_integers_are_refused(dtype):
    with pytest.raises(ValueError, match="row 0 needs a kernel"):
        divide(dtype, np.zeros(8, np.uint8), 2)


def divide(dtype, x, divisor):
    rows = [row(DIVIDE, place(0), count=x.nbytes // itemsize(dtype), extra=divisor)]
    program(rows, registers=[address(x)], op="avg", dtype=dtype).run()


def check_copy(nbytes, target_offset, source_offset, streams):
    source, _ = area(nbytes, "uint8", source_offset)
    target, around = area(nbytes, "uint8", target_offset)
    source[:] = RANDOM[:nbytes]
    how = STREAMED if streams else CACHED
    rows = [row(COPY, place(0), place(1), count=nbytes, extra=how)]
    program(rows, registers=[address(target), address(source)]).run()
    assert np.array_equal(target, source)
    start = offset_of(target, around)
    assert (around[:start] == GUARD).all()
    assert (around[start + nbytes :] == GUARD).all()


@pytest.mark.parametrize("streams", [False, True])
def test_copies_of_every_small_length(streams, target):
    for nbytes in range(601):
        check_copy(nbytes, 5 * nbytes, 3 * nbytes + 1, streams)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("nbytes", [100, 511, 4099, LARGE + 77])
def test_copies_at_every_alignment(nbytes, streams, target):
    for offset in range(64):
        check_copy(nbytes, offset, 37 * offset, streams)


@given(
    nbytes=st.integers(0, 5000),
    target_offset=st.integers(0, 63),
    source_offset=st.integers(0, 63),
    streams=st.booleans(),
)
def test_copies_of_any_length(nbytes, target_offset, source_offset, streams):
    check_copy(nbytes, target_offset, source_offset, streams)


def test_names_what_runs():
    assert compiled.target() in ("avx512", "avx2", "neon", "baseline")
    with pytest.raises(ValueError, match="'sse9' does not run here"):
        compiled.target("sse9")
