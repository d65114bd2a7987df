#!/bin/sh
# Checks what operators take: chart, manifests, alert rules, Dockerfile, compose file, systemd unit. A tool that
# this machine has not and cannot have is named in one line, and the rest is checked all the same.
#
#   scripts/check-deploy.sh            what `make test` runs
#   scripts/check-deploy.sh --write    renders deploy/kubernetes/lanekeeper.yaml anew first
#
# DEPLOY_TOOLS is the folder that scripts/install-requirements.sh put tools into.
set -eu
cd "$(dirname "$0")/.."

tools=${DEPLOY_TOOLS:-target/deploy-tools}
PATH="$PATH:$tools/npm/node_modules/.bin:$tools/python/bin"
failed=
say() { printf 'check-deploy: %s\n' "$*"; }
fail() {
    say "FAILED $*" >&2
    failed=yes
}
# has COMMAND WHAT: says what is not checked without it.
has() {
    command -v "$1" >/dev/null && return
    say "$1 is not there: $2"
    return 1
}

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
trap 'exit 1' HUP INT TERM

python=python3
[ ! -x "$tools/python/bin/python" ] || python=$tools/python/bin/python
if has helm "the chart is not rendered"; then
    if "$python" -c 'import yaml' 2>/dev/null; then
        PYTHONDONTWRITEBYTECODE=1 timeout 120 "$python" scripts/deploy/check.py "$(command -v helm)" "$@" || failed=yes
    else
        say "Python with PyYAML is not there: the chart is not checked"
    fi
fi

if has promtool "alert rules are not checked"; then
    for check in 'check rules alerts.yaml' 'test rules alerts_test.yaml' 'check config prometheus.yml'; do
        # shellcheck disable=SC2086
        answer=$(cd deploy/prometheus && timeout 60 promtool $check 2>&1) || fail "promtool $check: $answer"
    done
    if "$python" scripts/deploy/expressions.py >"$copy/dashboards.yaml"; then
        answer=$(timeout 60 promtool check rules "$copy/dashboards.yaml" 2>&1) || fail "dashboards: $answer"
    else
        say "Python with PyYAML is not there: the dashboards' expressions are not checked"
    fi
fi

if has hadolint "the Dockerfile is not linted"; then
    hadolint deploy/Dockerfile || failed=yes
fi

# Newer releases know it, and need no daemon for it.
if docker compose version >/dev/null 2>&1; then
    timeout 60 docker compose --file docker-compose.yml --profile tool config --quiet || failed=yes
else
    say "docker compose is not there: its file is not read by it"
fi

if has systemd-analyze "the unit is not verified"; then
    # A unit's programs must exist: what this unit says besides is checked with one that does.
    sed 's,^ExecStart=/usr/local/bin/lanekeeper,ExecStart=/bin/sh,' deploy/systemd/lanekeeper-worker.service \
        >"$copy/lanekeeper-worker.service"
    # Other units of this machine may be wrong: only what is said of this one counts.
    answer=$(timeout 60 systemd-analyze verify "$copy/lanekeeper-worker.service" 2>&1) || :
    said=$(printf '%s\n' "$answer" | grep lanekeeper-worker || :)
    [ -z "$said" ] || fail "systemd-analyze: $said"
fi

[ -z "$failed" ] || exit 1
say "done"
