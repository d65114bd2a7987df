#!/bin/sh
# The main job from end to end, on this machine alone: a private PostgreSQL, a webhook receiver,
# two workers, and recorded hook calls of agent CLIs. Ends with 0 if every event arrived once and
# in order, and leaves nothing behind.
#
#   INPUT=folder   other recordings: *.jsonl of {"cli", "payload"}
#   KEEP=1         leave it running afterwards, and say where
#   FAIL_EVERY=N   the receiver refuses every N-th request, to be tried again (0: none)
set -eu
input=${INPUT:-tests/fixtures/hooks}
[ -d "$input" ] || {
    echo "demo: there is no folder $input" >&2
    exit 2
}
DEMO_INPUT=$(cd "$input" && pwd)
cd "$(dirname "$0")/.."

echo "demo: building" >&2
cargo build --release --locked --bin lanekeeper --example receiver --example demo
target=${CARGO_TARGET_DIR:-target}
target=$(cd "$target" && pwd)
DEMO_BIN=$target/release
DEMO_RUN=$(mktemp -d "${TMPDIR:-/tmp}/lanekeeper-demo.XXXXXX")
DEMO_FAIL_EVERY=${FAIL_EVERY:-25}
DEMO_KEEP=${KEEP:-}
export DEMO_INPUT DEMO_BIN DEMO_RUN DEMO_FAIL_EVERY DEMO_KEEP

# What the environment says about databases, or about another Lanekeeper, is none of ours.
for name in $(env | awk -F= '/^(LANEKEEPER_|PG|DATABASE_URL=|REDIS_URL=)/ { print $1 }'); do
    unset "$name"
done
# Nor is a lanekeeper.toml that lies here.
LANEKEEPER_CONFIG=/dev/null
export LANEKEEPER_CONFIG

set -- "$DEMO_BIN/lanekeeper" dev --ephemeral --no-migrate -- scripts/demo-inner.sh
case $DEMO_KEEP in
'' | 0) exec "$@" ;;
esac

# It outlives us, so it writes to a file that we show until the verdict is there.
log=$DEMO_RUN/demo.log
: >"$log"
nohup "$@" </dev/null >"$log" 2>&1 &
dev=$!
tail -f "$log" &
tail=$!
trap 'kill "$tail" 2>/dev/null' EXIT
trap 'kill "$dev"; exit 130' INT TERM
while [ ! -e "$DEMO_RUN/verdict" ] && kill -0 "$dev" 2>/dev/null; do
    sleep 0.2
done
# tail looks once a second where nothing tells it of changes.
sleep 1.2
[ -e "$DEMO_RUN/verdict" ] || exit 1
status=$(cat "$DEMO_RUN/verdict")
echo "everything is left running; stop it with: kill $dev"
exit "$status"
