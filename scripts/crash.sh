#!/bin/sh
# The long form of the crash tests: many seeds, each a run of its own. What the runs say goes to
# standard error, the summary of all of them, one line of JSON, to standard output.
set -eu
cd "$(dirname "$0")/.."
summary=$(mktemp)
trap 'rm -f "$summary"' EXIT
cargo=${CARGO:-cargo}
"$cargo" build --profile crash --locked --bin lanekeeper
status=0
CRASH_SEEDS=${SEEDS:-1-1000} CRASH_MINUTES=${MINUTES:-30} CRASH_JOBS=${JOBS:-2} CRASH_SUMMARY=$summary \
    "$cargo" test --profile crash --locked --test crash -- --ignored --exact --nocapture long_form::many_seeds >&2 || status=$?
cat "$summary"
exit "$status"
