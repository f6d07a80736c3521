/* The kernels for one set of instructions. kernels.c includes this file once for each of them, with
   TARGET (the name that they end in), INSTRUCTIONS (a function attribute) and WIDTH (bytes of a
   vector) defined, so that compilers vectorise the same loops for each. Where they convert halves
   by vectors, WIDEN(floats, halves) and NARROW(halves, floats) do it for HALVES of them; where they
   write past the caches, STREAM(target, vector) does. */

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define IN(name) JOIN(name, TARGET)

/* ---- copies ---- */

#define VECTOR(bytes) uint8_t __attribute__((vector_size(bytes), aligned(1), may_alias))
typedef VECTOR(WIDTH) IN(Vector);
#define Vector IN(Vector)

/* Copy at least sizeof(type) bytes and at most twice as many, by two moves that may overlap. */
#define ENDS(type)                                                                                 \
    do {                                                                                           \
        const type first = *(const type *)source;                                                  \
        const type last = *(const type *)(source + nbytes - sizeof(type));                         \
        *(type *)target = first;                                                                   \
        *(type *)(target + nbytes - sizeof(type)) = last;                                          \
    } while (0)

INSTRUCTIONS static inline void IN(move4)(uint8_t *target, const uint8_t *source)
{
    const Vector a = ((const Vector *)source)[0], b = ((const Vector *)source)[1];
    const Vector c = ((const Vector *)source)[2], d = ((const Vector *)source)[3];
    ((Vector *)target)[0] = a, ((Vector *)target)[1] = b;
    ((Vector *)target)[2] = c, ((Vector *)target)[3] = d;
}

#ifdef STREAM
/* Move past the caches, and fetch what follows AHEAD: the processor's own prefetch ends with a page.
   Nothing after the step at `last`, which other cores may be writing. */
INSTRUCTIONS static inline void IN(stream4)(uint8_t *target, const uint8_t *source,
                                            const uint8_t *last)
{
    for (int at = 0; at < 4 * WIDTH && last - source >= AHEAD; at += LINE)
        __builtin_prefetch(source + AHEAD + at);
    const Vector a = ((const Vector *)source)[0], b = ((const Vector *)source)[1];
    const Vector c = ((const Vector *)source)[2], d = ((const Vector *)source)[3];
    STREAM(target, a);
    STREAM(target + WIDTH, b);
    STREAM(target + 2 * WIDTH, c);
    STREAM(target + 3 * WIDTH, d);
}
#endif

INSTRUCTIONS static void IN(copy)(uint8_t *target, const uint8_t *source, size_t nbytes,
                                  int streams)
{
    const size_t step = 4 * WIDTH;
    if (nbytes <= 32) {
        typedef VECTOR(16) Vector16;
        if (nbytes >= 16)
            ENDS(Vector16);
        else if (nbytes >= 8)
            ENDS(Uint64);
        else if (nbytes >= 4)
            ENDS(Uint32);
        else if (nbytes >= 2)
            ENDS(Uint16);
        else if (nbytes)
            *target = *source;
        return;
    }
#if WIDTH > 32
    if (nbytes <= 64) {
        typedef VECTOR(32) Vector32;
        ENDS(Vector32);
        return;
    }
#endif
    if (nbytes <= 2 * WIDTH) {
        ENDS(Vector);
        return;
    }
    if (nbytes < step) {
        const Vector second = ((const Vector *)source)[1];
        const Vector last_but_one = *(const Vector *)(source + nbytes - 2 * WIDTH);
        ENDS(Vector);
        ((Vector *)target)[1] = second;
        *(Vector *)(target + nbytes - 2 * WIDTH) = last_but_one;
        return;
    }
    /* The last step may overlap the loop's, whose targets are aligned, and so may the first. */
    uint8_t *const last_target = target + nbytes - step;
    const uint8_t *const last_source = source + nbytes - step;
    IN(move4)(target, source);
    const size_t ahead = step - ((uintptr_t)target & (WIDTH - 1));
    target += ahead, source += ahead;
#ifdef STREAM
    if (streams && nbytes >= STREAMED_BYTES) {
        for (; target < last_target; target += step, source += step)
            IN(stream4)(target, source, last_source);
        IN(move4)(last_target, last_source);
        _mm_sfence();
        return;
    }
#else
    (void)streams;
#endif
    for (; target < last_target; target += step, source += step) {
        OPAQUE(source);
        IN(move4)(target, source);
    }
    IN(move4)(last_target, last_source);
}

/* ---- folds ---- */

#define FOLD(op, dtype, formula, element, value, load, store)                                      \
    INSTRUCTIONS static void IN(op##_##dtype)(void *out, const void *left, const void *right,      \
                                              size_t count)                                        \
    {                                                                                              \
        element *o = out;                                                                          \
        const element *l = left, *r = right;                                                       \
        INDEPENDENT                                                                                \
        for (size_t i = 0; i < count; i++) {                                                       \
            value a = load(l[i]), b = load(r[i]);                                                  \
            o[i] = (element)store(formula);                                                        \
        }                                                                                          \
    }                                                                                              \
    MANY(op, dtype, sizeof(element))

#define MANY(op, dtype, size)                                                                      \
    static void IN(op##_many_##dtype)(void *out, const void *const *operands, size_t many,         \
                                      size_t count)                                                \
    {                                                                                              \
        fold_tiles(IN(op##_##dtype), size, out, operands, many, count);                            \
    }

#define DIVIDE(dtype, element, value, load, store)                                                 \
    INSTRUCTIONS static void IN(divide_##dtype)(void *x, double divisor, size_t count)             \
    {                                                                                              \
        element *o = x;                                                                            \
        const value by = (value)divisor;                                                           \
        for (size_t i = 0; i < count; i++)                                                         \
            o[i] = store(load(o[i]) / by);                                                         \
    }

#define SAME(x) (x)
#define TRUTH(x) ((x) != 0)

/* IEEE 754-2019's minimum and maximum, whose results no order of folds changes: a NaN of either side
   is kept, and -0 is less than +0. `|` and `&`, because a branch would keep loops from being
   vectorised. */
#define ZEROS ((a == 0) & (b == 0))
#define LESS_OR_NAN (ZEROS ? -(-a - b) : ((a < b) | (a != a)) ? a : b)
#define MORE_OR_NAN (ZEROS ? a + b : ((a > b) | (a != a)) ? a : b)

/* Unsigned arithmetic of at least an int's width wraps; a signed one, or a promoted one, does not. */
#define INTEGER_FOLDS(bits, wide)                                                                  \
    FOLD(sum, uint##bits, a + b, Uint##bits, wide, SAME, SAME)                                     \
    FOLD(prod, uint##bits, a *b, Uint##bits, wide, SAME, SAME)                                     \
    FOLD(band, uint##bits, a &b, Uint##bits, wide, SAME, SAME)                                     \
    FOLD(bor, uint##bits, a | b, Uint##bits, wide, SAME, SAME)                                     \
    FOLD(bxor, uint##bits, a ^ b, Uint##bits, wide, SAME, SAME)                                    \
    FOLD(land, uint##bits, a &b, Uint##bits, Uint##bits, TRUTH, SAME)                              \
    FOLD(lor, uint##bits, a | b, Uint##bits, Uint##bits, TRUTH, SAME)                              \
    FOLD(min, uint##bits, a < b ? a : b, Uint##bits, Uint##bits, SAME, SAME)                       \
    FOLD(max, uint##bits, a > b ? a : b, Uint##bits, Uint##bits, SAME, SAME)                       \
    FOLD(min, int##bits, a < b ? a : b, Int##bits, Int##bits, SAME, SAME)                          \
    FOLD(max, int##bits, a > b ? a : b, Int##bits, Int##bits, SAME, SAME)

INTEGER_FOLDS(8, unsigned)
INTEGER_FOLDS(16, unsigned)
INTEGER_FOLDS(32, uint32_t)
INTEGER_FOLDS(64, uint64_t)

FOLD(band, bool, a &b, Uint8, uint8_t, TRUTH, SAME)
FOLD(bor, bool, a | b, Uint8, uint8_t, TRUTH, SAME)
FOLD(bxor, bool, a ^ b, Uint8, uint8_t, TRUTH, SAME)

/* Half precision by the vectors that compilers do not choose themselves; the rest is padded to one. */
#ifdef WIDEN
#define HALF_FOLD(op, formula)                                                                     \
    INSTRUCTIONS static inline void IN(op##_halves)(Uint16 *o, const Uint16 *l, const Uint16 *r)   \
    {                                                                                              \
        float x[HALVES], y[HALVES];                                                                \
        WIDEN(x, l);                                                                               \
        WIDEN(y, r);                                                                               \
        INDEPENDENT                                                                                \
        for (int k = 0; k < HALVES; k++) {                                                         \
            const float a = x[k], b = y[k];                                                        \
            x[k] = formula;                                                                        \
        }                                                                                          \
        NARROW(o, x);                                                                              \
    }                                                                                              \
    INSTRUCTIONS static void IN(op##_float16)(void *out, const void *left, const void *right,      \
                                              size_t count)                                        \
    {                                                                                              \
        Uint16 *o = out;                                                                           \
        const Uint16 *l = left, *r = right;                                                        \
        size_t i = 0;                                                                              \
        for (; i + HALVES <= count; i += HALVES)                                                   \
            IN(op##_halves)(o + i, l + i, r + i);                                                  \
        if (i < count) {                                                                           \
            Uint16 x[HALVES] = {0}, y[HALVES] = {0};                                               \
            const size_t rest = (count - i) * sizeof *x;                                           \
            IN(copy)((uint8_t *)x, (const uint8_t *)(l + i), rest, 0);                             \
            IN(copy)((uint8_t *)y, (const uint8_t *)(r + i), rest, 0);                             \
            IN(op##_halves)(x, x, y);                                                              \
            IN(copy)((uint8_t *)(o + i), (uint8_t *)x, rest, 0);                                   \
        }                                                                                          \
    }                                                                                              \
    MANY(op, float16, sizeof(Uint16))

HALF_FOLD(sum, a + b)
HALF_FOLD(prod, a *b)
HALF_FOLD(min, LESS_OR_NAN)
HALF_FOLD(max, MORE_OR_NAN)

INSTRUCTIONS static inline void IN(divide_halves)(Uint16 *o, float by)
{
    float x[HALVES];
    WIDEN(x, o);
    INDEPENDENT
    for (int k = 0; k < HALVES; k++)
        x[k] /= by;
    NARROW(o, x);
}

INSTRUCTIONS static void IN(divide_float16)(void *x, double divisor, size_t count)
{
    Uint16 *o = x, padded[HALVES] = {0};
    size_t i = 0;
    for (; i + HALVES <= count; i += HALVES)
        IN(divide_halves)(o + i, (float)divisor);
    const size_t rest = (count - i) * sizeof *o;
    IN(copy)((uint8_t *)padded, (uint8_t *)(o + i), rest, 0);
    IN(divide_halves)(padded, (float)divisor);
    IN(copy)((uint8_t *)(o + i), (uint8_t *)padded, rest, 0);
}
#endif

#define FLOAT_FOLDS(dtype, element, value, load, store)                                            \
    FOLD(sum, dtype, a + b, element, value, load, store)                                           \
    FOLD(prod, dtype, a *b, element, value, load, store)                                           \
    FOLD(min, dtype, LESS_OR_NAN, element, value, load, store)                                     \
    FOLD(max, dtype, MORE_OR_NAN, element, value, load, store)                                     \
    DIVIDE(dtype, element, value, load, store)

#ifndef WIDEN
FLOAT_FOLDS(float16, Uint16, float, float_of_half, half_of_float)
#endif
FLOAT_FOLDS(bfloat16, Uint16, float, float_of_bfloat, bfloat_of_float)
FLOAT_FOLDS(float32, Float32, float, SAME, SAME)
FLOAT_FOLDS(float64, Float64, double, SAME, SAME)

/* Two reals each. The product is the plain formula, as in NumPy: C's own treats infinities apart.
   Of `a * c - b * d` GCC 12 makes a fused operation, whatever -ffp-contract says. */
#define COMPLEX_FOLDS(dtype, parts, real, value)                                                   \
    INSTRUCTIONS static void IN(sum_##dtype)(void *out, const void *left, const void *right,       \
                                             size_t count)                                         \
    {                                                                                              \
        IN(sum_##parts)(out, left, right, 2 * count);                                              \
    }                                                                                              \
    INSTRUCTIONS static void IN(prod_##dtype)(void *out, const void *left, const void *right,      \
                                              size_t count)                                        \
    {                                                                                              \
        real *o = out;                                                                             \
        const real *l = left, *r = right;                                                          \
        INDEPENDENT                                                                                \
        for (size_t i = 0; i < 2 * count; i += 2) {                                                \
            value a = l[i], b = l[i + 1], c = r[i], d = r[i + 1];                                  \
            o[i] = a * c + b * -d;                                                                 \
            o[i + 1] = a * d + b * c;                                                              \
        }                                                                                          \
    }                                                                                              \
    INSTRUCTIONS static void IN(divide_##dtype)(void *x, double divisor, size_t count)             \
    {                                                                                              \
        IN(divide_##parts)(x, divisor, 2 * count);                                                 \
    }                                                                                              \
    MANY(sum, dtype, 2 * sizeof(real))                                                             \
    MANY(prod, dtype, 2 * sizeof(real))

COMPLEX_FOLDS(complex64, float32, Float32, float)
COMPLEX_FOLDS(complex128, float64, Float64, double)

#define ROW(op, dtype, as) {#op, #dtype, IN(op##_##as), IN(op##_many_##as), NULL},
#define INTEGER_ROWS(dtype, bits)                                                                  \
    ROW(sum, dtype, uint##bits) ROW(prod, dtype, uint##bits) ROW(min, dtype, dtype)                \
    ROW(max, dtype, dtype) ROW(band, dtype, uint##bits) ROW(bor, dtype, uint##bits)                \
    ROW(bxor, dtype, uint##bits) ROW(land, dtype, uint##bits) ROW(lor, dtype, uint##bits)
#define SUM_ROWS(dtype)                                                                            \
    ROW(sum, dtype, dtype) {"avg", #dtype, IN(sum_##dtype), IN(sum_many_##dtype), IN(divide_##dtype)},
#define FLOAT_ROWS(dtype)                                                                          \
    SUM_ROWS(dtype) ROW(prod, dtype, dtype) ROW(min, dtype, dtype) ROW(max, dtype, dtype)
#define COMPLEX_ROWS(dtype) SUM_ROWS(dtype) ROW(prod, dtype, dtype)

static const FoldRow IN(fold_rows)[] = {
    ROW(band, bool, bool) ROW(bor, bool, bool) ROW(bxor, bool, bool)
    ROW(land, bool, uint8) ROW(lor, bool, uint8)
    INTEGER_ROWS(int8, 8) INTEGER_ROWS(int16, 16) INTEGER_ROWS(int32, 32) INTEGER_ROWS(int64, 64)
    INTEGER_ROWS(uint8, 8) INTEGER_ROWS(uint16, 16) INTEGER_ROWS(uint32, 32)
    INTEGER_ROWS(uint64, 64)
    FLOAT_ROWS(float16) FLOAT_ROWS(bfloat16) FLOAT_ROWS(float32) FLOAT_ROWS(float64)
    COMPLEX_ROWS(complex64) COMPLEX_ROWS(complex128)
    {0}
};

#undef Vector
#undef TARGET
#undef INSTRUCTIONS
#undef WIDTH
#undef STREAM
#undef HALVES
#undef WIDEN
#undef NARROW
