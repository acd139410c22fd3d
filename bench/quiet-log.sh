#!/usr/bin/env bash
# What a log that asks for little notices of one that takes all it can get: ten appends a second to one log of
# `seriatim dev` at its defaults: alone, beside eight processes that only spin, while eight clients append records of
# 4 KiB to a log of another server on this machine, and while they append to another log of this one, for each order.
# What the second and third have more than the first is what a full machine costs; what the last has more than the third
# is what one log costs another.
#
#   cargo build --release -p seriatim --examples --bins && bench/quiet-log.sh      about eleven minutes
#   bench/quiet-log.sh erwin-bb                                                  one order
#
# Nodes and clients share this machine. To see what is the nodes' own, let the eight give way: NICE=19 bench/quiet-log.sh
# or have one client fill the log: CLIENTS=1 bench/quiet-log.sh
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
seriatim=${SERIATIM:-$here/target/release/seriatim}
example=${MANY_LOGS:-$here/target/release/examples/many_logs}
work=$(mktemp -d)
nodes=()
beside=()
leave() {
    [ ${#beside[@]} = 0 ] || kill "${beside[@]}" 2>/dev/null || true
    [ ${#beside[@]} = 0 ] || wait "${beside[@]}" 2>/dev/null || true
    beside=()
}
end() {
    leave
    [ ${#nodes[@]} = 0 ] || kill "${nodes[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    nodes=()
}
trap 'end; rm -rf "$work"' EXIT

awk 'BEGIN {
    rest = "x"
    while (length(rest) < 4085) rest = rest rest
    rest = substr(rest, 1, 4085)
    for (i = 0; i < 400000; i++) print sprintf("%010d", i) rest
}' >"$work/lines"

# The median and p99 of ten appends a second for so many seconds, in ms, as two columns.
quiet() {
    "$example" "$server" 1 "$1" | awk '/appends took/ { print $4 " | " $7 }' | tr -d ','
}

# Starts a server under a name, and says where it listens in `server`.
start() {
    "$seriatim" dev --data "$work/$1" --listen 127.0.0.1:0 >"$work/$1.out" 2>&1 &
    nodes+=($!)
    until grep -q '^ready' "$work/$1.out"; do kill -0 $! && sleep 0.1; done
    server=$(awk '/^ready/ { print $2 }' "$work/$1.out")
}

# Clients fill a log of an order at a server, until `leave`.
fill() {
    "$seriatim" log create load --order "$1" --server "$2" >/dev/null
    for _ in $(seq "${CLIENTS:-8}"); do
        nice -n "${NICE:-0}" "$seriatim" append load --file "$work/lines" --server "$2" >/dev/null 2>&1 &
        beside+=($!)
    done
    sleep 2
}

echo "| order | alone, ms | p99 | beside loops, ms | p99 | beside a full server, ms | p99 | beside a full log, ms | p99 |"
echo "|---|---|---|---|---|---|---|---|---|"
[ $# -gt 0 ] || set -- erwin-bb erwin-st corfu scalog belfast
for order in "$@"; do
    start other
    other=$server
    start own
    alone=$(quiet 30)
    for _ in $(seq "${CLIENTS:-8}"); do
        nice -n "${NICE:-0}" bash -c 'while :; do :; done' &
        beside+=($!)
    done
    spun=$(quiet 30)
    leave
    fill "$order" "$other"
    elsewhere=$(quiet 30)
    leave
    fill "$order" "$server"
    echo "| $order | $alone | $spun | $elsewhere | $(quiet 30) |"
    end
    rm -rf "$work/other" "$work/own"
done
