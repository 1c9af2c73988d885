#!/bin/sh
# Puts in place what Farthing needs beside Rust: a C compiler and linker, Postgres, nats-server, curl. Does nothing
# where all of it is there. With `conformance`, also what the tests need: Python, for tests/conformance/run, and Chromium
# with its driver, for the browser tests. On Debian and Ubuntu it installs what is missing, as root or by sudo; the
# servers that the packages bring are not started, and Farthing never touches them: it runs private ones of its own.
set -eu

has() { command -v "$1" >/dev/null 2>&1; }

has_postgres() {
    has initdb && has postgres && return 0
    for bin in /usr/lib/postgresql/*/bin; do
        [ -x "$bin/initdb" ] && return 0
    done
    return 1
}

has_nats() { has nats-server || [ -x /usr/sbin/nats-server ]; }

if ! has cargo; then
    echo "Rust is missing: install it with rustup (https://rustup.rs), then run this again." >&2
    exit 1
fi

# Chromium, under one of its names, and the driver that speaks WebDriver.
has_browser() { has chromedriver && { has chromium || has google-chrome || has chrome; }; }

missing=""
has cc || missing="$missing build-essential"
has_postgres || missing="$missing postgresql"
has_nats || missing="$missing nats-server"
has curl || missing="$missing curl"
[ "${1:-}" != conformance ] || python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
if [ "${1:-}" = conformance ] && ! has_browser; then
    # Ubuntu has Chromium as a snap alone: confined, and without a driver that others can start.
    if [ -r /etc/os-release ] && grep -qx 'ID=ubuntu' /etc/os-release; then
        echo "The browser tests need Chromium and a chromedriver of the same version. Ubuntu's package is a snap, which a" >&2
        echo "test cannot drive: please put programs named \`chromium\` (or \`google-chrome\`) and \`chromedriver\` on PATH, such" >&2
        echo "as those of Chrome for Testing, then run this again." >&2
        exit 1
    fi
    missing="$missing chromium chromium-driver"
fi
[ -z "$missing" ] && exit 0

give_up() {
    echo "Please install, then run this again:$missing" >&2
    echo "  Debian, Ubuntu:  apt-get install$missing" >&2
    echo "  macOS:           brew install postgresql@17 nats-server; brew install --cask chromium chromedriver (tests)" >&2
    echo "  elsewhere:       Postgres 15 or newer (initdb and postgres on PATH), nats-server 2.9 or newer, a C compiler, curl, Python 3 with venv, Chromium and chromedriver" >&2
    exit 1
}

has apt-get || give_up
if [ "$(id -u)" = 0 ]; then
    as_root=""
elif has sudo; then
    as_root="sudo"
else
    give_up
fi

echo "Installing:$missing" >&2
# A policy of 101 keeps packages from starting their services while they are installed.
policy=/usr/sbin/policy-rc.d
ours=""
if [ ! -e "$policy" ]; then
    ours=yes
    trap '$as_root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi
$as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2 || echo "The package lists were not refreshed." >&2
# shellcheck disable=SC2086 # a list of packages
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing >&2 || give_up
if [ -n "$ours" ]; then
    $as_root rm -f "$policy"
    trap - EXIT
fi
