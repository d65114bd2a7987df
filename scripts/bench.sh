#!/bin/sh
# Measures this machine: each workload on a private server of its own, its results as JSON in a folder, then
# all of them as one Markdown table, there and on standard output. scripts/draw.py draws them.
#
#   scripts/bench.sh PROGRAM      the release build of lanekeeper
#   BENCH_OUT=folder              where the results go
#   WORKLOADS="drain steady"      only these
#   RUNS=5                        the median of so many, not of the usual number
set -eu
program=$1
out=${BENCH_OUT:-target/bench}
mkdir -p "$out"

# What the environment says about databases, or about another Lanekeeper, is none of ours.
for name in $(env | awk -F= '/^(LANEKEEPER_|PG|DATABASE_URL=|REDIS_URL=)/ { print $1 }'); do
    unset "$name"
done
LANEKEEPER_CONFIG=/dev/null
export LANEKEEPER_CONFIG

for workload in ${WORKLOADS:-drain sessions backlog enqueue acks documents aggregates projections latency steady \
    held-snapshot blocked-backlog resting partitions replicas replay memory}; do
    # Under its name only when it is whole.
    "$program" dev --ephemeral --no-migrate -- \
        "$program" bench "$workload" ${RUNS:+--runs "$RUNS"} --output json >"$out/$workload.partial"
    mv "$out/$workload.partial" "$out/$workload.json"
done
"$program" bench table "$out"/*.json | tee "$out/table.md"
