#!/bin/sh
# A rolling restart from an earlier commit's workers and schema to this one's: scripts/rolling.sh REF
# The commit must have migrations/functions: no path leads from the schemas before.
set -eu
cd "$(dirname "$0")/.."
ref=${1:?which commit to begin with}
commit=$(git rev-parse --verify "$ref^{commit}")
folder=$(mktemp -d)
cleanup() {
    git worktree remove --force "$folder/source" 2>/dev/null || true
    rm -rf "$folder"
}
trap cleanup EXIT
git worktree add --quiet --detach "$folder/source" "$commit"
# Its own target folder: the two would else rebuild each other's dependencies.
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/previous
(cd "$folder/source" && cargo build --locked --target-dir "$target")
cargo build --locked --features crash-points
PREVIOUS_LANEKEEPER="$target/debug/lanekeeper" cargo run --quiet --locked --features crash-points -- \
    dev --ephemeral --no-migrate -- scripts/on-test-server.sh \
    cargo nextest run --locked --features crash-points -E 'test(process::rolling)' --no-capture --retries 0
