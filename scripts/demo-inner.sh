#!/bin/sh
# The part of scripts/demo.sh that runs beside the private PostgreSQL, with DATABASE_URL set.
set -eu
PATH=$DEMO_BIN:$DEMO_BIN/examples:$PATH
pids=
step_pid=
verdict=1

cleanup() {
    trap '' INT TERM
    # The newest first: the workers are done before their receiver goes.
    for pid in $step_pid $pids; do
        { kill "$pid" && wait "$pid" || :; } 2>/dev/null
    done
    if [ "$verdict" = 0 ]; then
        rm -rf "$DEMO_RUN"
    else
        echo "demo: it failed or was stopped; logs and record are in $DEMO_RUN" >&2
    fi
}
trap cleanup EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

# start NAME COMMAND…: in the background, its output to the files of that name.
start() {
    name=$1
    shift
    "$@" >"$DEMO_RUN/$name.out" 2>"$DEMO_RUN/$name.log" &
    pids="$! $pids"
    eval "${name}_pid=$!"
}

# step COMMAND…: waits for it, but not when a signal comes first; a command in the foreground would
# hold the signal's trap up.
step() {
    "$@" &
    step_pid=$!
    status=0
    wait "$step_pid" || status=$?
    step_pid=
    return "$status"
}

# await FILE PID: until the program has written its first line.
await() {
    tenths=0
    until [ -s "$1" ]; do
        if [ "$tenths" = 100 ] || ! kill -0 "$2" 2>/dev/null; then
            echo "demo: no answer in $1; its log says:" >&2
            cat "${1%.out}.log" >&2
            exit 1
        fi
        tenths=$((tenths + 1))
        sleep 0.1
    done
}

DEMO_SECRET=whsec_$(head -c 24 /dev/urandom | base64)
LANEKEEPER_SPOOL__DIR=$DEMO_RUN/spool
LANEKEEPER_WORKER__ALLOW_PRIVATE_TARGETS=true
LANEKEEPER_HTTP__LISTEN=127.0.0.1:0
export DEMO_SECRET LANEKEEPER_SPOOL__DIR LANEKEEPER_WORKER__ALLOW_PRIVATE_TARGETS LANEKEEPER_HTTP__LISTEN

started=$(date +%s)
step lanekeeper migrate >&2
start receiver receiver --port 0 --record "$DEMO_RUN/record.jsonl" \
    --secret-env DEMO_SECRET --fail-every "$DEMO_FAIL_EVERY"
await "$DEMO_RUN/receiver.out" "$receiver_pid"
url=$(head -n 1 "$DEMO_RUN/receiver.out")

cat >"$DEMO_RUN/subscription.toml" <<TOML
[subscription.demo]
stream = "hooks"
adapter = "webhook"
url = "$url/hooks"
secret_env = "DEMO_SECRET"
TOML
step lanekeeper apply -f "$DEMO_RUN/subscription.toml" >&2
start worker_1 lanekeeper worker
start worker_2 lanekeeper worker

step demo feed --lanekeeper "$DEMO_BIN/lanekeeper" --input "$DEMO_INPUT"
# Calls that found the database too slow for an agent's turn wait on disk.
step lanekeeper spool >&2
if step demo verify --subscription demo --record "$DEMO_RUN/record.jsonl"; then
    verdict=0
fi
echo "the whole run took $(($(date +%s) - started)) s"

case $DEMO_KEEP in
'' | 0) exit "$verdict" ;;
esac
cat <<END

receiver      $url/summary        process $receiver_pid
worker 1      process $worker_1_pid, log $DEMO_RUN/worker_1.log
worker 2      process $worker_2_pid, log $DEMO_RUN/worker_2.log
PostgreSQL    $DATABASE_URL
END
# Complete before it is seen.
echo "$verdict" >"$DEMO_RUN/verdict.new"
mv "$DEMO_RUN/verdict.new" "$DEMO_RUN/verdict"
wait
