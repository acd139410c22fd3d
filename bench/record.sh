#!/bin/sh
# Records the figures of README.md, draws them, and puts them into the page: about half an hour on a calm machine.
# Latencies are measured for 10 s, because shorter rounds miss the stalls of disks.
#
#   cargo build --profile dist && bench/record.sh         everything that is older than the program
#   bench/record.sh latency failover-kill             these, in any case
#   TRIAL=1 bench/record.sh                           one short round of each, to see that it works
#
# What was recorded stays when this is interrupted; the next run goes on with the rest.
set -eu
cd "$(dirname "$0")"
mkdir -p results
program=${SERIATIM:-../target/dist/seriatim}
orders=erwin-bb,erwin-st,corfu,scalog
names=$*

# As many seconds, or rounds, as are given, or one in a trial.
up_to() {
    if [ -n "${TRIAL:-}" ]; then echo 1; else echo "$1"; fi
}

# record NAME OPTION...: runs a bench unless it was recorded already.
record() {
    name=$1
    shift
    file=results/$name.json
    case " $names " in
    "  ") if [ -s "$file" ] && [ "$file" -nt "$program" ]; then return; fi ;;
    *" $name "*) ;;
    *) return ;;
    esac
    echo "== $name"
    "$program" bench "$@" --json "$file"
    "$program" bench plot "$file" --page README.md
}

record latency latency --order $orders --duration "$(up_to 10)" --rounds "$(up_to 3)"
record latency-far latency --order $orders --duration "$(up_to 10)" --rtt 1ms --rounds "$(up_to 3)"
record latency-near latency --order $orders --duration "$(up_to 10)" --rtt 0.2ms --rounds "$(up_to 2)"
record latency-farther latency --order $orders --duration "$(up_to 10)" --rtt 5ms --rounds "$(up_to 2)"
record latency-rates latency --order $orders --duration "$(up_to 10)" --rate 1000,4000,16000 --rounds "$(up_to 2)"
record latency-closed latency --order $orders --duration "$(up_to 10)" --closed --rounds "$(up_to 3)"
record latency-disk latency --order $orders --duration "$(up_to 10)" --durability disk --rounds "$(up_to 3)"
record throughput throughput --order $orders --duration "$(up_to 2)" --rounds "$(up_to 3)"
record throughput-disk throughput --order $orders --duration "$(up_to 2)" --durability disk --rounds "$(up_to 2)"
record throughput-sizes throughput --order erwin-bb,erwin-st --duration 1 --size 100,1024,4096,8192 --rounds "$(up_to 2)"
record throughput-in-flight throughput --order $orders --duration 1 --size 4096 --clients 4 --in-flight 1,16,256 --rounds "$(up_to 2)"
record scale scale --order erwin-bb,erwin-st --duration 1 --size 4096 --shards 1,2,4 --replicas 2 --rounds "$(up_to 2)"
record metadata metadata --batch 1,16,256 --duration 1 --rounds "$(up_to 3)"
record read read --order $orders --duration 1 --rate 1000,4000,8000 --lag 0,3ms --rtt 0.2ms --rounds "$(up_to 2)"
record read-periods read --order $orders --duration 1 --rate 2000 --period 0.5ms,1ms,3ms,10ms --rtt 0.2ms --rounds "$(up_to 2)"
record read-together read --order erwin-st --duration "$(up_to 2)" --rate 8000 --lag 0,1s --together 25 --rounds "$(up_to 2)"
record grow grow --order erwin-st --duration "$(up_to 4)"
record failover-kill failover --order erwin-bb,erwin-st,corfu,scalog --rounds "$(up_to 8)"
record failover-pause failover --rounds "$(up_to 8)" --pause
record failover-etcd failover --rounds "$(up_to 8)" --register etcd
record stall stall --rounds "$(up_to 10)"
record player-targets player --order erwin-st --durability disk --rate 300 --targets 2,11,20 --duration "$(up_to 10)" --rounds "$(up_to 2)"
record player-sizes player --order erwin-st --durability disk --rate 300 --keys 1,5,10 --duration "$(up_to 10)" --rounds "$(up_to 2)"
record player-stop player --order erwin-st --durability disk --rate 300 --stop 1 --duration "$(up_to 9)" --rounds "$(up_to 5)"
record player-sqlite player --order erwin-st --sink sqlite --targets 1 --keys 1 --duration "$(up_to 10)" --rounds "$(up_to 2)"
