#!/usr/bin/env bash
# Many logs on three nodes, each a process of its own, with their register in etcd: how long until every log takes
# appends again when one node is killed, and when all are killed and started; and what memory they take.
#
#     cargo build --release -p seriatim --examples --bins && bench/many-logs.sh [LOGS]
#
# Needs etcd on the path. See docs/operations.md for what the figures should be.
set -euo pipefail
logs=${1:-1000}
here=$(cd "$(dirname "$0")/.." && pwd)
seriatim=${SERIATIM:-$here/target/release/seriatim}
example=${MANY_LOGS:-$here/target/release/examples/many_logs}
home=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$home"' EXIT
cd "$home"

etcd --data-dir etcd --listen-client-urls http://127.0.0.1:23790 --advertise-client-urls http://127.0.0.1:23790 \
    --listen-peer-urls http://127.0.0.1:23800 --initial-advertise-peer-urls http://127.0.0.1:23800 \
    --initial-cluster default=http://127.0.0.1:23800 > etcd.log 2>&1 &

start() {
    "$seriatim" serve --config "node$1.toml" > "node$1.out" 2>> "node$1.log" &
    pids[$1]=$!
}
lose() {
    kill -9 "${pids[$1]}"
    wait "${pids[$1]}" 2> /dev/null || true
}
ready() {
    timeout 60 sh -c "until grep -q ready node$1.out; do sleep 0.1; done"
}
memory() {
    for n in 1 2 3; do
        printf '%s MiB ' "$(awk '/VmRSS/ { print int($2 / 1024) }' "/proc/${pids[$n]}/status")"
    done
}

for n in 1 2 3; do
    printf 'id = %s\nlisten = "127.0.0.1:1770%s"\ndata = "node%s"\n\n[register]\netcd = ["http://127.0.0.1:23790"]\ncluster = "main"\n' \
        "$n" "$n" "$n" > "node$n.toml"
    start "$n"
done
for n in 1 2 3; do ready "$n"; done

# What the appending client prints each half second is kept, with the instants of what is done to the nodes.
"$example" 127.0.0.1:17701,127.0.0.1:17702,127.0.0.1:17703 "$logs" 50 > client.out 2>&1 &
client=$!
timeout 300 sh -c "until grep -q 'are open' client.out; do sleep 0.2; done"
head -n 1 client.out
sleep 10
echo "memory of the nodes: $(memory)"
echo "one node is killed"
lose 2
from=$(wc -l < client.out)
sleep 10
tail -n "+$((from + 1))" client.out | head -n 12
echo "it starts again"
start 2
sleep 8
echo "all are killed, and start again"
for n in 1 2 3; do lose "$n"; done
from=$(wc -l < client.out)
for n in 1 2 3; do start "$n"; done
wait "$client" || true
tail -n "+$((from + 1))" client.out
echo "memory of the nodes: $(memory)"
