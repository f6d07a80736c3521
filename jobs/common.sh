# What all batch scripts share: the site's hook, launcher, binding, and an end before its time.
#
# Set in the environment of sbatch:
#   MPICOLL_SETUP     file to source first, for modules and the like (default: jobs/setup.sh)
#   MPICOLL_MODULES   modules to load             MPICOLL_VENV      virtual environment to activate
#   MPICOLL_LAUNCHER  srun-pmi2, srun-pmix or mpirun (default: the srun that fits the MPI)
#   MPICOLL_BIND      to what each rank is bound: cores (default), sockets, none
#   MPICOLL_RESUME    id of an earlier job, whose files are completed
#   MPICOLL_REQUEUE   1: at the time limit the job queues again, and goes on by itself
#   MPICOLL_JOBS      folder of this file, where Slurm cannot tell
#
# A script finds here: $name, how its files are called; $tasks, how many ranks there are; `launch`,
# which starts a command on them, on $nodes nodes if that is set; `step`, which runs another launcher; `fail`.
set -euo pipefail
# Variables called MPICOLL_ are among the conditions under which --resume takes records together.
export -n MPICOLL_SETUP MPICOLL_MODULES MPICOLL_VENV MPICOLL_LAUNCHER MPICOLL_BIND \
    MPICOLL_RESUME MPICOLL_REQUEUE MPICOLL_JOBS MPICOLL_RENDEZVOUS

fail() {
    echo "Error: $*" >&2
    exit 2
}

# -- the hook ------------------------------------------------------------------------

set +eu # what sites and environments bring is not written for it
setup=${MPICOLL_SETUP:-$MPICOLL_JOBS/setup.sh}
if [ -e "$setup" ]; then . "$setup"; elif [ -n "$MPICOLL_SETUP" ]; then fail "no file $setup"; fi
if [ -n "$MPICOLL_MODULES" ]; then module load $MPICOLL_MODULES || fail "module load failed"; fi
if [ -n "$MPICOLL_VENV" ]; then . "$MPICOLL_VENV/bin/activate" || fail "no such MPICOLL_VENV"; fi
set -eu
python -c 'import importlib.util as u; exit(u.find_spec("mpicoll") is None)' ||
    fail "$(type -p python || echo 'no python') has no mpicoll: activate its environment by" \
        "MPICOLL_VENV, or in $setup"

# -- names ---------------------------------------------------------------------------

job=${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-local}}
name=${SLURM_JOB_NAME:-$(basename "$0" .sbatch)}-${MPICOLL_RESUME:-$job}
tasks=${SLURM_NTASKS:-$((${SLURM_JOB_NUM_NODES:-1} * ${SLURM_NTASKS_PER_NODE:-4}))}
# The id of an array is that of one of its tasks too: alone it would mean them all.
this=${SLURM_JOB_ID:-}
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then this=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi

# -- launcher and binding ------------------------------------------------------------

# One thread a rank: a pool of threads in each would fight over the cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
bind=${MPICOLL_BIND:-cores}

launch() { # command: run it on $tasks ranks, from the first node on
    local first=(${nodes:+"--nodes=$nodes"})
    case $(launcher) in
        srun-pmi2) srun_bound "${first[@]}" --ntasks="$tasks" --mpi=pmi2 "$@" ;;
        srun-pmix) srun_bound "${first[@]}" --ntasks="$tasks" --mpi=pmix "$@" ;;
        # What mpirun starts on each node by srun must not be bound: it binds the ranks.
        mpirun) SLURM_CPU_BIND=none step mpirun --bind-to "${bind%s}" -n "$tasks" "$@" ;;
        *) fail "MPICOLL_LAUNCHER is srun-pmi2, srun-pmix or mpirun, not $MPICOLL_LAUNCHER" ;;
    esac
}

srun_bound() { # options and command: each task on cores of its own
    # From Slurm 22.05 on srun does not take --cpus-per-task from sbatch.
    local each=(${SLURM_CPUS_PER_TASK:+"--cpus-per-task=$SLURM_CPUS_PER_TASK"})
    step srun --cpu-bind="$bind" "${each[@]}" "$@"
}

launcher() { # by which the ranks are started: as asked for, or as fits the MPI
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

# -- an end before its time ----------------------------------------------------------

# Bash sees to a signal between commands only, or while it waits: so it waits.
step() { # command: run it
    starter=$1
    "$@" &
    running=$!
    wait "$running"
}

written() { cat "$name"*.json* 2>/dev/null | wc -c; }

stop() { # signal: end the ranks; what they measured is on the disk
    trap '' INT TERM USR1
    echo "$1: ending the ranks; what was measured is in $name*" >&2
    # srun would kill them; to the steps themselves the signal comes as it is.
    if [ -n "$this" ]; then scancel --signal=TERM "$this" || true; fi
    if [ -n "${running:-}" ]; then
        if [ "$starter" != srun ]; then kill -TERM "$running" || true; fi
        wait "$running" || true
    fi
    # A job that came no further would queue again for ever.
    if [ "$1" = SIGUSR1 ] && [ "${MPICOLL_REQUEUE:-}" = 1 ] && [ "$(written)" -gt "$before" ]; then
        echo "queueing again as job $this" >&2
        scontrol requeue "$this"
    else
        echo "to go on, submit again with MPICOLL_RESUME=${MPICOLL_RESUME:-$job}" >&2
    fi
    exit 143
}
before=$(written)
trap 'stop SIGINT' INT
trap 'stop SIGTERM' TERM
trap 'stop SIGUSR1' USR1
