/* Copies, folds and divisions of host memory, compiled for several sets of instructions, of which
   the processor at hand chooses one when the library is loaded.

   The choice is a table of our own and not `target_clones`: that needs a libc with indirect
   functions, which musl is not and which sanitizers do not stand, and tests could not run the
   other clones. */

#include "kernels.h"
#include "tuning.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Elements as they lie in memory: at any address. */
#define UNALIGNED __attribute__((aligned(1), may_alias))
typedef uint8_t UNALIGNED Uint8;
typedef uint16_t UNALIGNED Uint16;
typedef uint32_t UNALIGNED Uint32;
typedef uint64_t UNALIGNED Uint64;
typedef int8_t UNALIGNED Int8;
typedef int16_t UNALIGNED Int16;
typedef int32_t UNALIGNED Int32;
typedef int64_t UNALIGNED Int64;
typedef float UNALIGNED Float32;
typedef double UNALIGNED Float64;

/* Arrays are the same or apart, so a loop need not ask which. A short loop that clang unrolls first
   it does not vectorise. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety) unroll(disable)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Keep a compiler from replacing a loop by a call of memcpy. */
#define OPAQUE(pointer) __asm__("" : "+r"(pointer))

typedef void (*Copy)(uint8_t *target, const uint8_t *source, size_t nbytes, int streams);

/* ---- half precision: without branches, for any vector unit ---- */

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float float_of_bfloat(uint16_t half)
{
    return float_of((uint32_t)half << 16);
}

/* Round to nearest, ties to even; a NaN stays one, made quiet. */
static inline uint16_t bfloat_of_float(float x)
{
    const uint32_t bits = bits_of(x);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)(x != x ? (bits >> 16) | 0x40 : rounded);
}

/* The exponent's bias is 15 in a half and 127 in a float; a half's subnormal is a multiple of 2^-24. */
static inline float float_of_half(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    const uint32_t bias = magnitude < 0x7c00 ? 112u << 23 : 224u << 23;
    const uint32_t normal = (magnitude << 13) + bias;
    const uint32_t subnormal = bits_of((float)(int32_t)magnitude * 0x1p-24f);
    return float_of(sign | (magnitude < 0x400 ? subnormal : normal));
}

/* Round to nearest, ties to even; a NaN stays one, made quiet. */
static inline uint16_t half_of_float(float x)
{
    const uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    /* The sum's last bit is 2^-24: the addition itself rounds. */
    const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
    uint32_t half = magnitude < 113u << 23 ? subnormal : normal;
    half = magnitude >= 0x47800000 ? 0x7c00 : half;
    half = magnitude > 0x7f800000 ? 0x7e00 | ((magnitude >> 13) & 0x3ff) : half;
    return (uint16_t)(half | ((bits >> 16) & 0x8000));
}

/* ---- many operands: a tile stays in the cache until the last is folded ---- */

static void fold_tiles(Fold fold, size_t size, void *out, const void *const *operands, size_t many,
                       size_t count)
{
    _Alignas(64) uint8_t tile[FOLD_TILE];
    const size_t most = FOLD_TILE / size;
    if (many == 1 && out != operands[0])
        copy_bytes(out, operands[0], size * count, 0);
    if (many < 2)
        return;
    for (size_t done = 0; done < count;) {
        const size_t now = count - done < most ? count - done : most;
        const size_t at = size * done;
        /* Only the last fold writes to `out`, which may be any operand. */
        const void *folded = (const uint8_t *)operands[0] + at;
        for (size_t k = 1; k < many; k++) {
            void *to = k == many - 1 ? (uint8_t *)out + at : tile;
            fold(to, folded, (const uint8_t *)operands[k] + at, now);
            folded = to;
        }
        done += now;
    }
}

enum { LINE = 64 }; /* bytes of a cache line */

#define TARGET baseline
#define INSTRUCTIONS
#define WIDTH 16
#if defined(__x86_64__)
#define STREAM(target, vector) _mm_stream_si128((__m128i *)(target), (__m128i)(vector))
#elif defined(__aarch64__)
#define HALVES 4
#define WIDEN(floats, halves)                                                                      \
    vst1q_f32(floats, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)(halves)))))
#define NARROW(halves, floats)                                                                     \
    vst1_u16((uint16_t *)(halves), vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(floats))))
#endif
#include "kernels_target.h"

#if defined(__x86_64__)
#define TARGET avx2
#define INSTRUCTIONS __attribute__((target("avx2,f16c")))
#define WIDTH 32
#define HALVES 8
#define WIDEN(floats, halves)                                                                      \
    _mm256_storeu_ps(floats, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(halves))))
#define NARROW(halves, floats)                                                                     \
    _mm_storeu_si128((__m128i *)(halves),                                                          \
                     _mm256_cvtps_ph(_mm256_loadu_ps(floats), _MM_FROUND_TO_NEAREST_INT))
#define STREAM(target, vector) _mm256_stream_si256((__m256i *)(target), (__m256i)(vector))
#include "kernels_target.h"

#define TARGET avx512
#define INSTRUCTIONS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define WIDTH 64
#define HALVES 16
#define WIDEN(floats, halves)                                                                      \
    _mm512_storeu_ps(floats, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(halves))))
#define NARROW(halves, floats)                                                                     \
    _mm256_storeu_si256((__m256i *)(halves),                                                       \
                        _mm512_cvtps_ph(_mm512_loadu_ps(floats), _MM_FROUND_TO_NEAREST_INT))
#define STREAM(target, vector) _mm512_stream_si512((__m512i *)(target), (__m512i)(vector))
#include "kernels_target.h"
#endif

/* ---- the choice ---- */

/* Not by __builtin_cpu_supports: with Zig, it says no to everything. */
static int has_features(unsigned features, unsigned state)
{
#if defined(__x86_64__)
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_F16C))
        return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); /* the registers that the system saves */
    return (low & state) == state && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (b & features) == features;
#else
    return !features && !state;
#endif
}

#if defined(__aarch64__)
#define BASELINE "neon"
#else
#define BASELINE "baseline"
#endif

typedef struct {
    const char *name;
    unsigned features, state; /* of the processor; 0: it runs everywhere */
    const FoldRow *folds;
    Copy copy;
} Target;

/* The best first. */
static const Target targets[] = {
#if defined(__x86_64__)
    {"avx512", bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL, 0xe6, fold_rows_avx512, copy_avx512},
    {"avx2", bit_AVX2, 0x6, fold_rows_avx2, copy_avx2},
#endif
    {BASELINE, 0, 0, fold_rows_baseline, copy_baseline},
};

enum { TARGETS = sizeof targets / sizeof *targets };

static const Target *chosen = &targets[TARGETS - 1];

int use_kernel_target(const char *name)
{
    for (const Target *each = targets; each < targets + TARGETS; each++)
        if (!strcmp(each->name, name) && (!each->features || has_features(each->features, each->state))) {
            chosen = each;
            return 1;
        }
    return 0;
}

__attribute__((constructor)) static void choose(void)
{
    for (const Target *best = targets; !use_kernel_target(best->name); best++)
        continue;
}

const char *kernel_target(void)
{
    return chosen->name;
}

const FoldRow *find_fold_row(const char *op, const char *dtype)
{
    const FoldRow *row = chosen->folds;
    while (row->op && (strcmp(row->op, op) || strcmp(row->dtype, dtype)))
        row++;
    return row; /* the last one is empty */
}

void copy_bytes(void *target, const void *source, size_t nbytes, int streams)
{
    chosen->copy(target, source, nbytes, streams);
}
