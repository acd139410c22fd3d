#!/usr/bin/env bash
# What a log that asks for little notices of one that takes all it can get: ten appends a second to one log of
# `seriatim dev` at its defaults: alone, beside eight processes that only spin, and while eight clients append records of
# 4 KiB to another log, for each order. What the second column has more than the first is what a full processor costs;
# what the third has more than the second is what one log costs another.
#
#   cargo build --release -p seriatim --examples --bins && bench/quiet-log.sh      about five minutes
#   bench/quiet-log.sh erwin-bb                                                  one order
#
# Nodes and clients share this machine. To see what is the nodes' own, let the eight give way: NICE=19 bench/quiet-log.sh
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
seriatim=${SERIATIM:-$here/target/release/seriatim}
example=${MANY_LOGS:-$here/target/release/examples/many_logs}
work=$(mktemp -d)
node=
beside=()
leave() {
    [ ${#beside[@]} = 0 ] || kill "${beside[@]}" 2>/dev/null || true
    [ ${#beside[@]} = 0 ] || wait "${beside[@]}" 2>/dev/null || true
    beside=()
}
end() {
    leave
    [ -z "$node" ] || kill "$node" 2>/dev/null || true
    wait 2>/dev/null || true
    node=
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

echo "| order | alone, ms | p99 | beside loops, ms | p99 | beside a full log, ms | p99 |"
echo "|---|---|---|---|---|---|---|"
[ $# -gt 0 ] || set -- erwin-bb erwin-st corfu scalog
for order in "$@"; do
    "$seriatim" dev --data "$work/data" --listen 127.0.0.1:0 >"$work/dev" 2>&1 &
    node=$!
    until grep -q '^ready' "$work/dev"; do kill -0 "$node" && sleep 0.1; done
    server=$(awk '/^ready/ { print $2 }' "$work/dev")
    alone=$(quiet 10)
    for _ in 1 2 3 4 5 6 7 8; do
        nice -n "${NICE:-0}" bash -c 'while :; do :; done' &
        beside+=($!)
    done
    spun=$(quiet 20)
    leave
    "$seriatim" log create load --order "$order" --server "$server" >/dev/null
    for _ in 1 2 3 4 5 6 7 8; do
        nice -n "${NICE:-0}" "$seriatim" append load --file "$work/lines" --server "$server" >/dev/null 2>&1 &
        beside+=($!)
    done
    sleep 2
    echo "| $order | $alone | $spun | $(quiet 20) |"
    end
    rm -rf "$work/data"
done
