#!/bin/sh
# Installs the newest agent CLIs from npm into a private folder, and drives them against a scripted model, in a network
# namespace that has only the loopback: see clis/drive.py. Not part of `make test`: it needs npm's registry, Linux and
# 1.2 GB of disk.
#
#   scripts/clis.sh LANEKEEPER FOLDER [CLI…]     CLIs: claude codex gemini opencode; all of them by default
set -eu
program=$1
folder=$2
shift 2
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)

for need in npm node python3 git unshare ip; do
    command -v "$need" >/dev/null || {
        echo "clis: $need is missing" >&2
        exit 1
    }
done
mkdir -p "$folder"
folder=$(CDPATH= cd -- "$folder" && pwd)
program=$(CDPATH= cd -- "$(dirname -- "$program")" && pwd)/$(basename -- "$program")
[ -e "$folder/package.json" ] || echo '{"private": true}' >"$folder/package.json"
if [ -z "${OFFLINE-}" ]; then
    # Their native programs are packages of their own: nothing of them runs at the installation.
    npm install --prefix "$folder" --no-audit --no-fund --ignore-scripts --loglevel error \
        @anthropic-ai/claude-code@latest @openai/codex@latest @google/gemini-cli@latest opencode-ai@latest >&2
    for wrapper in @anthropic-ai/claude-code/install.cjs opencode-ai/postinstall.mjs; do
        (cd "$folder/node_modules/$(dirname -- "$wrapper")" && node "$(basename -- "$wrapper")") >&2
    done
fi
mkdir -p "$folder/bin"
ln -sf "$program" "$folder/bin/lanekeeper"
PATH=$folder/bin:$PATH
export PATH

# Root needs no user namespace, and in one PostgreSQL would not leave root.
user='--map-current-user --keep-caps'
[ "$(id -u)" != 0 ] || user=
# shellcheck disable=SC2086
exec unshare $user --net sh -c 'ip link set lo up && exec "$@"' sh \
    "$program" dev --ephemeral -- python3 "$here/clis/drive.py" "$folder/node_modules/.bin" "$folder/run" "$@"
