# Carries out a page of the documentation as its reader would: its blocks marked `sh`, one after another, in one shell. For
# scripts that read this file. The servers are the page's own, in a network namespace of its own, so that its ports are free.
# Needs root for that, and `cargo build -p farthing`.

leave_out() {
    echo "Left out: $1: $2"
    exit 0
}

# Goes on in namespaces of its own: `own_namespace TITLE "PROGRAM …" "$@"`. The title is for the message if that is not
# possible. The namespace of processes ends with the script, and every server in it.
own_namespace() {
    title=$1 programs=$2
    shift 2
    if [ "${1:-}" != inside ]; then
        [ "$(id -u)" = 0 ] || leave_out "$title" "it needs root for a network namespace and a Postgres"
        PATH="$PATH:/usr/sbin:/usr/local/bin"
        ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || leave_out "$title" "there is no initdb"
        for program in unshare ip $programs; do
            command -v "$program" >/dev/null || leave_out "$title" "there is no $program"
        done
        unshare --net true 2>/dev/null || leave_out "$title" "this machine allows no network namespace"
        exec unshare --net --pid --fork --kill-child --mount-proc "$0" inside
    fi
    ip link set lo up
    bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
    farthing=${FARTHING_TEST_PROGRAM:-${CARGO_TARGET_DIR:-$PWD/target}/debug/farthing}
    [ -x "$farthing" ] || { echo "There is no $farthing. Run: cargo build -p farthing"; exit 1; }
    folder=$(mktemp -d "${TMPDIR:-/tmp}/farthing-page-XXXXXX")
    trap 'code=$?; trap - EXIT; rm -rf "$folder"; exit $code' EXIT
    chmod 755 "$folder"
    home="$folder/home"
    mkdir "$folder/bin" "$home"
    ln -s "$farthing" "$folder/bin/farthing"
}

# The shell that carries out the file. A script may define it again, for another user.
page_shell() {
    PATH="$folder/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:$bin"
    export PATH HOME="$home"
    unset SSL_CERT_FILE SSL_CERT_DIR PGPASSWORD PGPASSFILE
    for name in $(env | sed -n 's/^\(FARTHING_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
    sh -eu "$1"
}

# Runs the blocks of the page in the folder `home`: `carry_out PAGE TEXT …`. Each text must be in the output.
carry_out() {
    awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$1" >"$folder/page.sh"
    shift
    cd "$home"
    if ! page_shell "$folder/page.sh" >"$folder/output" 2>&1; then
        cat "$folder/output" ./*.log
        echo "test result: FAILED. 0 passed; 1 failed"
        exit 1
    fi
    cat "$folder/output"
    for said; do
        grep -q -e "$said" "$folder/output" || { echo "The page did not print: $said"; exit 1; }
    done
    echo "test result: ok. 1 passed; 0 failed"
}
