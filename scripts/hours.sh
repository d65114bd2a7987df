#!/bin/sh
# Runs the tests that depend on the time of day on private servers whose clock stands at hours when days, months and
# years change; see `make hours`. The clock runs on from there. Only the server's clock is set: the tests' own is not, so
# this also finds code that compares the two. Goes on after an hour that fails, and ends with what became of each.
#
#   HOURS      instants of UTC, such as "2028-02-28T23:58:00"; those below by default
#   TESTS      the command that runs tests
#   PROGRAM    the built lanekeeper
#   MAJOR      the version of PostgreSQL; the installed one by default
set -eu

cd "$(dirname "$0")/.."
hours=${HOURS:-"2027-03-10T23:30:00 2027-03-10T23:58:00 2027-04-30T23:58:00 2026-12-31T23:58:00 2028-02-28T23:58:00 2028-02-29T12:00:00"}

# The server may run as another user.
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
trap 'exit 1' INT TERM
mkdir "$tools/bin"
cc -shared -fPIC -O1 -Wall -Wextra -Werror -o "$tools/clock.so" scripts/hours/clock.c -ldl
# The server's programs, of which `postgres` gets the clock.
installed=$(pg_config --version 2>/dev/null | sed 's/[^0-9]*\([0-9]*\).*/\1/')
real=$(scripts/postgres-version.sh "${MAJOR:-${installed:-17}}")
for program in "$real"/*; do
    ln -sf "$program" "$tools/bin/"
done
rm -f "$tools/bin/postgres"
cat > "$tools/bin/postgres" <<END
#!/bin/sh
exec env LD_PRELOAD='$tools/clock.so' '$real/postgres' "\$@"
END
chmod 755 "$tools" "$tools/bin" "$tools/bin/postgres" "$tools/clock.so"

results=
failed=
for hour in $hours; do
    CLOCK_OFFSET_S=$(($(date -u -d "$hour" +%s) - $(date +%s)))
    export CLOCK_OFFSET_S
    outcome=passed
    # shellcheck disable=SC2086 # a command with its arguments
    TEST_POSTGRES_BIN=$tools/bin "$PROGRAM" dev --ephemeral --no-migrate --postgres-bin "$tools/bin" -- \
        scripts/on-test-server.sh $TESTS || { outcome=FAILED; failed=yes; }
    results="$results
  $hour: $outcome"
done
printf 'hours:%s\n' "$results"
[ -z "$failed" ]
