#!/bin/sh
# Agents that make commitments: documents, each change an event of its own type, and a read model of them that a function in
# SQL keeps. Needs psql. Start it with
#   lanekeeper dev --ephemeral -- sh examples/commitments/run.sh
set -eu
cd "$(dirname "$0")"
lanekeeper=${LANEKEEPER:-lanekeeper}

psql --quiet --set ON_ERROR_STOP=1 --file schema.sql "$DATABASE_URL"
# The same database for the role of the read model.
BOARD_KEEPER_URL=$(printf '%s' "$DATABASE_URL" | sed 's#://[^@/]*@#://board_keeper:board_keeper@#')
export BOARD_KEEPER_URL
"$lanekeeper" apply -f subscriptions.toml
LANEKEEPER_HTTP__LISTEN=127.0.0.1:0 "$lanekeeper" worker 2>worker.log &
worker=$!
trap 'kill "$worker"; wait "$worker" || true; rm -f worker.log' EXIT

# document KIND ID BODY TYPE: its change and its event, in one step.
document() {
    "$lanekeeper" document put "$1" "$2" --body "$3" --event-type "$4" >/dev/null
}

document agent anna '{"state": "idle"}' AgentSpawned
document agent bert '{"state": "idle"}' AgentSpawned
document agent anna '{"state": "working"}' AgentStateChanged
document commitment c1 '{"agent": "anna", "says": "the tests pass", "state": "open"}' CommitmentAdded
document commitment c2 '{"agent": "anna", "says": "the page is up by noon", "state": "open"}' CommitmentAdded
document commitment c3 '{"agent": "bert", "says": "no secret is in the log", "state": "open"}' CommitmentAdded
document commitment c1 '{"agent": "anna", "says": "the tests pass", "state": "verifying"}' CommitmentVerificationStarted
document commitment c1 '{"agent": "anna", "says": "the tests pass", "state": "verified"}' CommitmentVerified
document commitment c2 '{"agent": "anna", "says": "the page is up by noon", "state": "failed"}' CommitmentFailed
"$lanekeeper" document delete agent bert --event-type AgentDismissed >/dev/null

until "$lanekeeper" projection show board --output json | grep -q '"behind":0'; do
    sleep 0.2
done
show() { psql --quiet --command 'TABLE board.overview' "$DATABASE_URL"; }
show
echo 'The same from the log:'
"$lanekeeper" projection rebuild board
show
