#!/bin/bash
# Strong scaling: the same sizes on 1, 2, 4, ... nodes, as one job array, and one merge at the end.
#
#   bash jobs/scaling.sh 1,2,4,8 [OPTIONS OF SBATCH] [-- ARGUMENTS OF THE BENCHMARK]
#   bash jobs/scaling.sh 1,2,4 --ntasks-per-node 8 -p short -- --collectives allreduce -e 64M
#   MPICOLL_RESUME=17 bash jobs/scaling.sh 1,2,4,8         continue array 17
set -euo pipefail
jobs=$(CDPATH="" cd -- "$(dirname -- "$0")" && pwd)
counts=${1:?numbers of nodes, such as 1,2,4,8}
shift
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1") && shift; done
[ $# -eq 0 ] || shift
mapfile -t nodes < <(tr , '\n' <<<"$counts" | sort -n)
most=${nodes[-1]}

array=$(sbatch --parsable --hold "${options[@]}" --job-name=mpicoll-scaling --array="$counts" \
    --nodes="$most" --output=%x-%A_%a.out "$jobs/scaling.sbatch" "$@")
array=${array%%;*}
# All tasks of an array request the same: reduce each to what it uses before it starts.
shown=$(scontrol show job "$array")
asked() { sed -n "/.*$1=\([0-9]*\).*/{s//\1/p;q}" <<<"$shown"; }
tasks=$(asked NumTasks) cpus=$(asked NumCPUs)
for n in "${nodes[@]}"; do
    scontrol update "jobid=${array}_$n" "numnodes=$n" "numtasks=$((tasks * n / most))" \
        "numcpus=$((cpus * n / most))" ||
        echo "warning: $n nodes are measured in an allocation of $most" >&2
done
scontrol release "$array"

name=mpicoll-scaling-${MPICOLL_RESUME:-$array}
parts=("${nodes[@]/#/$name-}")
merge=$(sbatch --parsable "${options[@]}" --dependency="afterany:$array" --job-name=mpicoll-merge \
    --nodes=1 --ntasks=1 --ntasks-per-node=1 --time=00:10:00 --output=%x-%j.out \
    "$jobs/merge.sbatch" "$name" "${parts[@]/%/.jsonl}")
echo "array $array; then job ${merge%%;*} merges into $name.jsonl"
