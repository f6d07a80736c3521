# shellcheck shell=bash
# Shared by all batch scripts: the site's setup, launcher, binding, and the end at the time limit.
#
# mpicoll/docs/howto/study_on_slurm.md describes the variables, to be set in the environment of sbatch:
#   MPICOLL_SETUP MPICOLL_MODULES MPICOLL_VENV MPICOLL_LAUNCHER MPICOLL_BIND MPICOLL_RESUME
#   MPICOLL_REQUEUE MPICOLL_JOBS
#
# For the scripts: $name, the prefix of their files; $tasks, the number of ranks; `launch`, which
# starts a command on these ranks, on $nodes nodes and the hosts of $hostfile if these are set;
# `check_command`, for a program of the user; `launch_torchrun` and `meet`, for torch; `step`, which
# runs another launcher; `fail`. If a script defines `inspect`, that runs before the ranks are ended.
set -euo pipefail
# The benchmark records variables called MPICOLL_, and --resume refuses a file with other values.
export -n MPICOLL_SETUP MPICOLL_MODULES MPICOLL_VENV MPICOLL_LAUNCHER MPICOLL_BIND \
    MPICOLL_RESUME MPICOLL_REQUEUE MPICOLL_JOBS MPICOLL_RENDEZVOUS

fail() {
    echo "Error: $*" >&2
    exit 2
}

# -- setup ---------------------------------------------------------------------------

set +eu # the site's files may not be written for them
setup=${MPICOLL_SETUP:-$MPICOLL_JOBS/setup.sh}
case $setup in */*) ;; *) setup=./$setup ;; esac # a bare name is looked up along PATH
if [ -e "$setup" ]; then
    # shellcheck source=/dev/null
    . -- "$setup"
elif [ -n "$MPICOLL_SETUP" ]; then
    fail "no file $MPICOLL_SETUP"
fi
read -ra modules <<<"$MPICOLL_MODULES"
if [ ${#modules[@]} != 0 ]; then module load "${modules[@]}" || fail "module load failed"; fi
# shellcheck source=/dev/null
if [ -n "$MPICOLL_VENV" ]; then . -- "$MPICOLL_VENV/bin/activate" || fail "no such MPICOLL_VENV"; fi
set -eu
python -c 'import importlib.util as u; exit(u.find_spec("mpicoll") is None)' ||
    fail "$(type -p python || echo 'no python') has no mpicoll: activate its environment by" \
        "MPICOLL_VENV, or in $setup"

# -- names ---------------------------------------------------------------------------

job=${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-local}}
name=${SLURM_JOB_NAME:-mpicoll-$(basename -- "$0" .sbatch)}-${MPICOLL_RESUME:-$job}
tasks=${SLURM_NTASKS:-$((${SLURM_JOB_NUM_NODES:-1} * ${SLURM_NTASKS_PER_NODE:-4}))}
# scancel takes the id of an array for all of its tasks: name the task.
this=${SLURM_JOB_ID:-}
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then this=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi

# -- launcher and binding ------------------------------------------------------------

# One thread a rank: pools of threads would compete for the cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
bind=${MPICOLL_BIND:-cores}

check_command() { # words: refuse a program that is no command, before anything starts
    local example="python -m mpicoll.run solver.py"
    [ $# != 0 ] || fail "name the program, as a command: $example"
    if type -P -- "$1" >/dev/null || [[ -f $1 && -x $1 ]]; then return; fi
    [[ $1 != *.py ]] || fail "$1 is no command: give python -m mpicoll.run $1, or python $1"
    fail "there is no command $1: name the program as $example"
}

launch() { # command: run it on $tasks ranks, from the first node on
    local first=(${nodes:+"--nodes=$nodes"}) hosts=(${hostfile:+--hostfile "$hostfile"})
    # Slurm takes a name with a slash for a file.
    if [ -n "${hostfile:-}" ]; then first+=("--nodelist=$(realpath -- "$hostfile")"); fi
    case $(launcher) in
        srun-pmi2) srun_bound "${first[@]}" --ntasks="$tasks" --mpi=pmi2 "$@" ;;
        srun-pmix) srun_bound "${first[@]}" --ntasks="$tasks" --mpi=pmix "$@" ;;
        # mpirun starts its daemons by srun: these must not be bound, as mpirun binds the ranks.
        mpirun) SLURM_CPU_BIND=none step mpirun "${hosts[@]}" --bind-to "${bind%s}" -n "$tasks" \
            "$@" ;;
        *) fail "MPICOLL_LAUNCHER is srun-pmi2, srun-pmix or mpirun, not $MPICOLL_LAUNCHER" ;;
    esac
}

srun_bound() { # options and command: each task on cores of its own
    # From Slurm 22.05 on srun does not take --cpus-per-task from sbatch.
    local each=(${SLURM_CPUS_PER_TASK:+"--cpus-per-task=$SLURM_CPUS_PER_TASK"})
    # A rank that fails ends the others, as under mpirun: they may wait for it for ever.
    step srun --kill-on-bad-exit=1 --cpu-bind="$bind" "${each[@]}" "$@"
}

meet() { # state for torch where its ranks meet: the first node, and a port of this job
    export SLURM_GPU_BIND=none MASTER_ADDR=${MASTER_ADDR:-$(hostname)}
    export MASTER_PORT=${MASTER_PORT:-$((20000 + ${SLURM_JOB_ID:?torch needs a job} % 12000))}
}

launch_torchrun() { # arguments of Python: run it on $tasks ranks, by one torchrun on each node
    meet
    local count=$SLURM_JOB_NUM_NODES
    [ $((tasks % count)) = 0 ] || fail "nodes need as many tasks each"
    # torchrun binds nothing: its ranks share the cores of their node.
    step srun --kill-on-bad-exit=1 --mpi=none --cpu-bind=none --ntasks="$count" --ntasks-per-node=1 \
        torchrun --nnodes "$count" --nproc-per-node $((tasks / count)) \
        --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d \
        --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" "$@"
}

launcher() { # print the launcher of the ranks: as asked for, or as fits the MPI
    local vendor='from mpi4py import rc; rc.initialize = False
from mpi4py import MPI; print(MPI.get_vendor()[0])'
    if [ -n "${MPICOLL_LAUNCHER:-}" ]; then
        echo "$MPICOLL_LAUNCHER"
    elif ! type -p srun >/dev/null || [ -z "${SLURM_JOB_ID:-}" ]; then
        echo mpirun
    elif [ "$(python -c "$vendor")" = "Open MPI" ]; then
        echo srun-pmix
    else
        echo srun-pmi2
    fi
}

# -- the end at the time limit --------------------------------------------------------

# Bash handles a signal between commands or in `wait`, not while a command runs in front.
step() { # command: run it
    starter=$1
    "$@" &
    running=$!
    wait "$running"
}

written() { cat -- "$name"[.-]*json* 2>/dev/null | wc -c; }

stop() { # signal: end the ranks; their records are on the disk
    trap '' INT TERM USR1
    if declare -F inspect >/dev/null; then
        echo "$1: ending the ranks" >&2
        inspect
    else
        echo "$1: ending the ranks; what was measured is in $name*" >&2
    fi
    # A signal to srun would kill the ranks; scancel sends it to them as it is.
    if [ -n "$this" ]; then scancel --signal=TERM "$this" || true; fi
    if [ -n "${running:-}" ]; then
        if [ "$starter" != srun ]; then kill -TERM "$running" || true; fi
        wait "$running" || true
    fi
    # A job that measures nothing more would queue again for ever.
    if [ "$1" = SIGUSR1 ] && [ "${MPICOLL_REQUEUE:-}" = 1 ] && [ "$(written)" -gt "$before" ]; then
        echo "queueing again as job $this" >&2
        scontrol requeue "$this"
    elif ! declare -F inspect >/dev/null; then
        echo "to continue, submit again with MPICOLL_RESUME=${MPICOLL_RESUME:-$job}" >&2
    fi
    exit 143
}
before=$(written)
trap 'stop SIGINT' INT
trap 'stop SIGTERM' TERM
trap 'stop SIGUSR1' USR1
