#!/bin/sh
# A person on a phone talks to an agent in a terminal: Telegram in, tmux, the agent's hooks, Telegram out. Telegram is a FAKE
# (telegram.py), and so is the agent; tmux, Postgres and Lanekeeper are real. Needs tmux and python3. Start it with
#   lanekeeper dev --ephemeral -- sh examples/chat/run.sh
set -eu
cd "$(dirname "$0")"
LANEKEEPER=${LANEKEEPER:-lanekeeper}
folder=$(mktemp -d)
socket=$folder/tmux
worker= telegram=
# shellcheck disable=SC2329 # the trap calls it
clean() {
    tmux -S "$socket" kill-server 2>/dev/null || true
    [ -z "$worker" ] || { kill "$worker" && wait "$worker" || true; }
    [ -z "$telegram" ] || kill "$telegram" 2>/dev/null || true
    rm -rf "$folder"
}
trap clean EXIT
trap 'exit 1' INT TERM

# Waits until a command succeeds.
until_true() {
    what=$1 tries=0
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || {
            echo "not within 30 s: $what" >&2
            tail -n 20 "$folder/worker.log" >&2
            tmux -S "$socket" capture-pane -p -t agent >&2 || true
            exit 1
        }
        sleep 0.1
    done
}

echo 'No message of this example leaves this machine: its Telegram is a fake.'
python3 telegram.py serve "$folder/url" &
telegram=$!
until_true 'the fake Telegram serves' test -s "$folder/url"
url=$(cat "$folder/url")
sed -e "s#TELEGRAM_URL#$url#" -e "s#TMUX_SOCKET#$socket#" subscriptions.toml >"$folder/subscriptions.toml"
"$LANEKEEPER" apply -f "$folder/subscriptions.toml"

# The agent's hooks are calls of `lanekeeper hook`; what they spool stays in this folder.
export LANEKEEPER LANEKEEPER_SPOOL__DIR="$folder/spool"
BOT_TOKEN=1:of-a-fake LANEKEEPER_HTTP__LISTEN=127.0.0.1:0 LANEKEEPER_WORKER__ALLOW_PRIVATE_TARGETS=true \
    "$LANEKEEPER" worker 2>"$folder/worker.log" &
worker=$!

tmux -f /dev/null -S "$socket" new-session -d -s agent -x 200 -y 50 -- python3 "$PWD/agent.py" tg-77
pane=$(tmux -S "$socket" display-message -p -t agent '#{pane_id}')
"$LANEKEEPER" session bind inbound tg-77 --pane "$pane" --socket "$socket"

# The bot has said this in the chat, at last.
says() {
    python3 telegram.py chat "$url" | grep --quiet -- "$1\$"
}

python3 telegram.py write "$url" 'reverse olleh'
until_true 'the agent answers' says hello
python3 telegram.py write "$url" 'how many
words are these?'
until_true 'the agent answers again' says '5 words in 2 lines'
python3 telegram.py write "$url" /status
until_true 'the chat is told how the session is' says 'No message waits.'
echo "The bot's messages, each with its versions:"
python3 telegram.py chat "$url"
echo 'The session:'
"$LANEKEEPER" session show inbound tg-77
