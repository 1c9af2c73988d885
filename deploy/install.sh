#!/bin/sh
# Installs what Farthing needs in addition to Rust: a C compiler and linker, Postgres, nats-server, curl. With
# `conformance`, also what the tests need: Python with venv, for tests/conformance/run, Chromium with chromedriver, for
# the browser tests, Prometheus with promtool and matplotlib, for the test of the metrics, PgBouncer, nginx, openssl, jq
# and sudo, for tests/first_hour/run, a YAML reader, for tests/deployment/run, LibreOffice, for tests/exports/run, and
# faketime, for tests of machines whose clock differs. Does nothing if everything is installed. On Debian and Ubuntu it
# installs missing packages, as root or with sudo; elsewhere it prints what to install. It does not start the servers of
# the packages, and Farthing does not use them: it runs private ones.
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
    echo "Rust is not installed. Install it with rustup (https://rustup.rs), then run this script again." >&2
    exit 1
fi

# Chromium, under any of its names, and its WebDriver server.
has_browser() { has chromedriver && { has chromium || has google-chrome || has chrome; }; }

has_prometheus() { has prometheus && has promtool; }

# A module of the first Python on PATH, or of the system's.
has_module() {
    for python in python3 /usr/bin/python3; do
        "$python" -c "import $1" 2>/dev/null && return 0
    done
    return 1
}

missing=""
has cc || missing="$missing build-essential"
has_postgres || missing="$missing postgresql"
has_nats || missing="$missing nats-server"
has curl || missing="$missing curl"
[ "${1:-}" != conformance ] || python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
if [ "${1:-}" = conformance ]; then
    PATH="$PATH:/usr/sbin"
    for program in nginx openssl jq pgbouncer faketime sudo; do
        has "$program" || missing="$missing $program"
    done
fi
if [ "${1:-}" = conformance ] && ! has_browser; then
    # Ubuntu packages Chromium only as a snap: confined, and without a chromedriver that other programs can start.
    if [ -r /etc/os-release ] && grep -qx 'ID=ubuntu' /etc/os-release; then
        echo "The browser tests need Chromium and a chromedriver of the same version. Ubuntu packages Chromium as a snap," >&2
        echo "which the tests cannot control. Put \`chromium\` (or \`google-chrome\`) and \`chromedriver\` on PATH, for example" >&2
        echo "from Chrome for Testing, then run this script again." >&2
        exit 1
    fi
    missing="$missing chromium chromium-driver"
fi
if [ "${1:-}" = conformance ]; then
    has_prometheus || missing="$missing prometheus"
    has_module matplotlib || missing="$missing python3-matplotlib"
    has_module yaml || missing="$missing python3-yaml"
    has soffice || missing="$missing libreoffice-calc-nogui"
fi
[ -z "$missing" ] && exit 0

give_up() {
    echo "Cannot install the missing packages. Install them, then run this script again:$missing" >&2
    echo "  Debian, Ubuntu:  apt-get install$missing" >&2
    echo "  macOS:           brew install postgresql@17 nats-server; brew install nginx prometheus jq pgbouncer libfaketime python-matplotlib pyyaml; brew install --cask chromium chromedriver libreoffice (tests)" >&2
    echo "  other systems:   Postgres 15 or newer (initdb and postgres on PATH), nats-server 2.9 or newer, a C compiler, curl, Python 3 with venv, matplotlib and PyYAML, Chromium and chromedriver, Prometheus with promtool, PgBouncer, nginx, openssl, jq, faketime, sudo, LibreOffice (soffice)" >&2
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
# A policy-rc.d that exits with 101 keeps packages from starting their services during installation.
policy=/usr/sbin/policy-rc.d
ours=""
if [ ! -e "$policy" ]; then
    ours=yes
    trap '$as_root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi
$as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2 || echo "Cannot refresh the package lists; continuing with the old ones." >&2
# shellcheck disable=SC2086 # a list of packages
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing >&2 || give_up
if [ -n "$ours" ]; then
    $as_root rm -f "$policy"
    trap - EXIT
fi
