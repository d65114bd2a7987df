#!/bin/sh
# Runs a command of tests under `lanekeeper dev`: the private server is known to the test harness
# alone, so that no test depends on a database that the environment happens to name.
set -eu
TEST_DATABASE_URL=$DATABASE_URL
export TEST_DATABASE_URL
unset DATABASE_URL LANEKEEPER_DATABASE__URL PGHOST PGPORT PGUSER PGDATABASE
exec "$@"
