/* Copies, folds and divisions of host memory: what the compiled executor does to bytes.

   Nothing here knows of Python, ranks or programs. Areas need no alignment. */
#ifndef MPICOLL_KERNELS_H
#define MPICOLL_KERNELS_H

#include <stddef.h>

/* Write left op right for `count` elements. `out` may be `left` or `right`, or overlaps neither. */
typedef void (*Fold)(void *out, const void *left, const void *right, size_t count);

/* Write ((x0 op x1) op x2) op ... of `many` operands, and read each of them once.
   `out` may be one of them, or overlaps none. */
typedef void (*FoldMany)(void *out, const void *const *operands, size_t many, size_t count);

/* Divide `count` elements in place. */
typedef void (*Divide)(void *x, double divisor, size_t count);

/* What folds by an operator; `divide`: of "avg", which folds as "sum". All are NULL where it is not defined on a
   dtype. Names are those of mpicoll/notation/elements.py. */
typedef struct {
    const char *op, *dtype;
    Fold fold;
    FoldMany many;
    Divide divide;
} FoldRow;

const FoldRow *find_fold_row(const char *op, const char *dtype);

/* Copy between areas that do not overlap. `streams` says that this core will not read the target
   soon, and that no cache holds it: from 1 KiB on it is then written past the caches, and a store
   fence ends the copy. Of a large array this takes two thirds of the time, part by part, too; of
   one in the cache, twice the time and more. */
void copy_bytes(void *target, const void *source, size_t nbytes, int streams);

/* Name the instructions that run here: "avx512", "avx2", "neon" or "baseline". */
const char *kernel_target(void);

/* Run other instructions from now on (tests compare them); 0 where the processor lacks them.
   What was found before stays as it was. */
int use_kernel_target(const char *name);

#endif
