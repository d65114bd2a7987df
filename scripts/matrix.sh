#!/bin/sh
# Runs the integration tests on several major versions of PostgreSQL, one after the other, each on a
# private server of that version; see `make matrix`. Goes on after a version that fails, and ends
# with what became of each.
#
#   MATRIX     the versions; all that are supported by default
#   TESTS      the command that runs tests
#   PROGRAM    the built lanekeeper
set -u

cd "$(dirname "$0")/.." || exit 1
results=
failed=
for major in ${MATRIX:-14 15 16 17 18}; do
    if ! bin=$(scripts/postgres-version.sh "$major"); then
        outcome='NOT RUN: there are no server programs'
    else
        printf 'matrix: %s, in %s\n' "$("$bin/postgres" --version)" "$bin" >&2
        # shellcheck disable=SC2086 # a command with its arguments
        if TEST_POSTGRES_BIN=$bin "$PROGRAM" dev --ephemeral --no-migrate --postgres-bin "$bin" -- \
            scripts/on-test-server.sh $TESTS; then
            outcome=passed
        else
            outcome=FAILED
        fi
    fi
    [ "$outcome" = passed ] || failed=yes
    results="$results
  PostgreSQL $major: $outcome"
done
printf 'matrix:%s\n' "$results"
[ -z "$failed" ]
