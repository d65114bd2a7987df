#!/bin/sh
# Makes a Debian package of the built program: binary, systemd unit, man pages, shell completions, licences.
#
#   scripts/package-deb.sh PROGRAM FOLDER     the package goes to FOLDER, and its path to standard output
#
# Needs dpkg-deb and, for the list of libraries that the program needs, dpkg-shlibdeps (dpkg-dev) if it is there.
set -eu
program=$1
out=$2
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)

version=$("$program" --version | sed 's/^lanekeeper //')
# SemVer's pre-releases sort before the release: Debian writes that with a tilde.
version=$(printf '%s' "$version" | sed 's/-/~/')
architecture=$(dpkg --print-architecture)
mkdir -p "$out"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$root"

install -D -m 755 "$program" "$root/usr/bin/lanekeeper"
mkdir -p "$root/usr/lib/systemd/system"
# Without the lines on installing it by hand.
sed '2,/^\[Unit\]/{/^\[Unit\]/!d}; s,/usr/local/bin/lanekeeper,/usr/bin/lanekeeper,' "$here/deploy/systemd/lanekeeper-worker.service" \
    >"$root/usr/lib/systemd/system/lanekeeper-worker.service"
"$program" man --dir "$root/usr/share/man/man1" 2>/dev/null
gzip -9n "$root"/usr/share/man/man1/*
for pair in bash:bash-completion/completions/lanekeeper zsh:zsh/vendor-completions/_lanekeeper \
    fish:fish/vendor_completions.d/lanekeeper.fish; do
    file=$root/usr/share/${pair#*:}
    mkdir -p "$(dirname -- "$file")"
    "$program" completions "${pair%%:*}" >"$file"
done
for file in LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md; do
    install -D -m 644 "$here/$file" "$root/usr/share/doc/lanekeeper/$file"
done
install -d -m 755 "$root/etc/lanekeeper"
cat >"$root/etc/lanekeeper/worker.env" <<'END'
# Settings of the worker, LANEKEEPER_<SECTION>__<KEY>, OTEL_…, and the secrets that subscriptions name.
# The connection string is not here: root writes it to /etc/lanekeeper/database-url (mode 0600).
END
chmod 640 "$root/etc/lanekeeper/worker.env"

# The C library that it was built with is the oldest that it runs on.
depends=libc6
if command -v dpkg-shlibdeps >/dev/null; then
    mkdir -p "$root/debian"
    printf 'Source: lanekeeper\n\nPackage: lanekeeper\nArchitecture: %s\n' "$architecture" >"$root/debian/control"
    depends=$(cd "$root" && dpkg-shlibdeps -O usr/bin/lanekeeper 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
    rm -r "$root/debian"
fi
mkdir "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<END
Package: lanekeeper
Version: $version
Architecture: $architecture
Maintainer: The Lanekeeper contributors
Installed-Size: $(du -sk "$root" | cut -f1)
Depends: ${depends:-libc6}
Recommends: ca-certificates
Suggests: postgresql, redis-server, tmux
Section: database
Priority: optional
Homepage: $(sed -n 's/^homepage = "\(.*\)"/\1/p' "$here/Cargo.toml" | head -n 1)
Description: ordered, durable delivery of AI-agent session events
 Lanekeeper keeps the events of agent sessions in PostgreSQL and delivers them
 at least once and strictly in order inside a session to webhooks, chat
 platforms, streams, programs and other agents, from any number of workers.
END
echo /etc/lanekeeper/worker.env >"$root/DEBIAN/conffiles"
# The unit is neither enabled nor started: it needs a connection string first.
cat >"$root/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # Of an upgrade: the schema is migrated by hand or by the deployment, see docs/deploy.md.
    [ -z "$2" ] || systemctl try-restart lanekeeper-worker.service
fi
END
cat >"$root/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now lanekeeper-worker.service
fi
END
chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm"
package=$out/lanekeeper_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
printf '%s\n' "$package"
