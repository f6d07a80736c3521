#!/bin/bash
# NCCL's collectives as nccl-tests measures them and as our benchmark does, in turns, on the ranks
# of one launch each: rows of time, algbw and busbw for the same sizes.
#
#   NCCL_TESTS=nccl-tests NCCL_HOME=/usr bash jobs/nccl_tests.sh RANKS [FOLDER]
#
# NCCL_TESTS is a copy of github.com/NVIDIA/nccl-tests, NCCL_HOME has NCCL's include/ and lib/,
# MPI_HOME the include/ and lib/ of mpirun's MPI. The five programs take a minute to build, into
# FOLDER (by default nccl-tests-results/). Ranks take a GPU each, or all one where
# NCCL_MULTI_RANK_GPU_ENABLE=1.
set -euo pipefail
ranks=${1:?how many ranks} out=$(realpath -m -- "${2:-nccl-tests-results}")
here=$(CDPATH="" cd -- "$(dirname -- "$0")/.." && pwd)
mpi=${MPI_HOME:-$(dirname -- "$(dirname -- "$(command -v mpirun)")")}
cuda=${CUDA_HOME:-$(dirname -- "$(dirname -- "$(readlink -f -- "$(command -v nvcc)")")")}
tests=(all_reduce all_gather reduce_scatter broadcast alltoall)
programs=("${tests[@]/%/_perf}")
mkdir -p -- "$out"
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
make -C "${NCCL_TESTS:?the sources of nccl-tests}/src" -j"$(nproc)" MPI=1 MPI_HOME="$mpi" CUDA_HOME="$cuda" \
    NCCL_HOME="${NCCL_HOME:-/usr}" BUILDDIR="$out/build" \
    NVCC_GENCODE="-gencode=arch=compute_$capability,code=sm_$capability" \
    os.build "${programs[@]/#/$out/build/}" >"$out/build.log" 2>&1 ||
    { tail -n 5 -- "$out/build.log" && exit 1; }
if [ "${NCCL_MULTI_RANK_GPU_ENABLE:-0}" != 0 ]; then export NCCL_TESTS_DEVICE=0; fi
cd -- "$here"
for name in "${tests[@]}"; do
    mpirun -n "$ranks" "$out/build/${name}_perf" -b 4K -e 128M -f 32 -n 50 -w 5 -J "$out/$name.json"
    # -z 0: calls of a sample follow one another on the stream, as there.
    mpirun -n "$ranks" python3 -m mpicoll.bench "$name" --backends mpi4py --device cuda --calls plans \
        --algorithms native:nccl -z 0 -b 4K -e 128M -f 32 -w 5 --time 15 --format nccl \
        -J "$out/$name.jsonl"
done
