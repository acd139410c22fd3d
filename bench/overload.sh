#!/usr/bin/env bash
# What plain load does to a cluster: eight clients append a file each, as fast as they can, to a log of `seriatim dev`
# at its defaults. Prints a table with a line for each case. It should say 0 failed and view 1 everywhere.
#
#   cargo build --release && bench/overload.sh            all cases, about six minutes and 15 GB of disk at a time
#   bench/overload.sh erwin-bb:4096:60000                 one case: order, bytes of a line, lines of each client
set -euo pipefail

seriatim=${SERIATIM:-"$(dirname "$0")/../target/release/seriatim"}
clients=8
usual=(erwin-bb:4096:60000 erwin-st:4096:60000 scalog:4096:60000 belfast:4096:60000 corfu:4096:60000
    erwin-st:1000000:200 erwin-st:100:500000 erwin-st:1000:200000)
work=$(mktemp -d)
node=
trap '[ -z "$node" ] || kill "$node"; rm -rf "$work"' EXIT

# The lines of one client, each of so many bytes with its end.
lines() {
    awk -v bytes="$1" -v count="$2" 'BEGIN {
        rest = "x"
        while (length(rest) < bytes - 11) rest = rest rest
        rest = substr(rest, 1, bytes - 11)
        for (i = 0; i < count; i++) print sprintf("%010d", i) rest
    }'
}

run() {
    local order bytes count
    IFS=: read -r order bytes count <<<"$1"
    lines "$bytes" "$count" >"$work/lines"
    : >"$work/dev"
    "$seriatim" dev --data "$work/data" --listen 127.0.0.1:0 >"$work/dev" 2>&1 &
    node=$!
    until grep -q '^ready' "$work/dev"; do
        kill -0 "$node" || { cat "$work/dev"; exit 1; }
        sleep 0.1
    done
    local server failed=0 began ended status
    server=$(awk '/^ready/ { print $2 }' "$work/dev")
    "$seriatim" log create load --order "$order" --server "$server" >/dev/null
    began=$(date +%s%N)
    local appending=()
    for client in $(seq "$clients"); do
        "$seriatim" append load --file "$work/lines" --server "$server" >"$work/append-$client" 2>&1 &
        appending+=($!)
    done
    for one in "${appending[@]}"; do wait "$one" || failed=$((failed + 1)); done
    ended=$(date +%s%N)
    status=$("$seriatim" status --json --server "$server")
    printf '| %s | %d x %d of %d B | %s | %d of %d | %s | %s | %s | %s |\n' \
        "$order" "$clients" "$count" "$bytes" \
        "$(awk -v ns=$((ended - began)) 'BEGIN { printf "%.1f", ns / 1e9 }')" "$failed" "$clients" \
        "$(jq -r '.logs[0].view.number // .logs[0].view' <<<"$status")" \
        "$(jq '[.nodes[].wrong_suspicions] | add' <<<"$status")" \
        "$(awk '/VmHWM/ { print int($2 / 1024) }' "/proc/$node/status")" \
        "$(du -sm "$work/data" | cut -f1)"
    kill "$node"
    wait "$node" || true
    node=
    rm -rf "$work/data"
}

command -v jq >/dev/null || { echo "this needs jq" >&2; exit 1; }
echo "| order | appends | seconds | clients that failed | view | wrong suspicions | memory, MiB | disk, MiB |"
echo "|---|---|---|---|---|---|---|---|"
for case in "${@:-${usual[@]}}"; do run "$case"; done
