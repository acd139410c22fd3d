#!/usr/bin/env bash
# The workloads of SpecLog's figures 7 to 17: records that are computed on before they are final. Prints a table with the ratios
# that the paper tells, for README.md; about ten minutes on a calm machine, and figures of different runs cannot be compared.
#
#   cargo build --release && cargo build --release -p seriatim-client --examples && bench/speculation.sh
#   bench/speculation.sh 7 12          these figures only
#   TRIAL=1 bench/speculation.sh       a second and a round of each, to see that it works
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p results
program=${SERIATIM:-../target/release/seriatim}
examples=$(dirname "$program")/examples
figures=" $* "
seconds=${TRIAL:-3}
rounds=${TRIAL:-3}

wanted() { [[ $figures == "  " || $figures == *" $1 "* ]]; }

# run NAME BENCH OPTION...: a bench whose figures go to results/NAME.json.
run() {
    local name=$1 bench=$2
    shift 2
    "$program" bench "$bench" "$@" --duration "$seconds" --rounds "$rounds" --json "results/$name.json" >/dev/null
}

# ratios NAME FIGURE A B [SETTING]: how many times A's figure is B's, for each value of a setting.
ratios() {
    jq -r --arg figure "$2" --arg a "$3" --arg b "$4" --arg setting "${5:-}" '
        def times: . * 100 | round / 100;
        [.rows[] | select(.name == $b)] as $others
        | [.rows[] | select(.name == $a) | . as $row
            | $others[] | select($setting == "" or .[$setting] == $row[$setting] or $row[$setting] == null)
            | (if $setting == "" then "" else "\(.[$setting]): " end)
                + (if .[$figure] > 0 and $row[$figure] != null then "\($row[$figure] / .[$figure] | times)" else "-" end)]
        | join(", ")' "results/$1.json"
}

# values NAME FIGURE ORDER [SETTING]: the figure itself, for each value of a setting.
values() {
    jq -r --arg figure "$2" --arg order "$3" --arg setting "${4:-}" '
        [.rows[] | select(.name == $order)
            | (if $setting == "" then "" else "\(.[$setting]): " end) + "\(.[$figure] | . * 10 | round / 10)"]
        | join(", ")' "results/$1.json"
}

line() { printf '| %s | %s | %s |\n' "$@"; }

cuts=scalog,belfast
far=(--rtt 0.2ms --replicas 2 --rate 2000)
command -v jq >/dev/null || { echo "this needs jq" >&2; exit 1; }
echo "| figure | what | measured |"
echo "|---|---|---|"
if wanted 7; then
    for subscribe in shard all; do
        run "speculate-$subscribe" speculate --order $cuts,erwin-st "${far[@]}" --shards 2,4 --compute 1.5ms --subscribe $subscribe
        name=speculate-$subscribe
        line 7 "delivery, mean, scalog / belfast, by shards; programs read: $subscribe" "$(ratios $name delivery_mean_us scalog belfast shards)"
        line 7 "delivery, mean, scalog / erwin-st, the same" "$(ratios $name delivery_mean_us scalog erwin-st shards)"
        line 7 "delivery, mean, belfast / erwin-st, the same" "$(ratios $name delivery_mean_us belfast erwin-st shards)"
        line 7 "result, mean, scalog / belfast, the same" "$(ratios $name result_mean_us scalog belfast shards)"
        line 7 "result, p99, scalog / belfast, the same" "$(ratios $name result_p99_us scalog belfast shards)"
        line 7 "result, mean, scalog / erwin-st, the same" "$(ratios $name result_mean_us scalog erwin-st shards)"
        line 7 "belfast: records that came before they were final, %; positions without a record, %" \
            "$(values $name predicted_percent belfast shards); $(values $name empty_percent belfast shards)"
    done
fi
if wanted 8; then
    run speculate-compute speculate --order $cuts "${far[@]}" --shards 4 --compute 0.5ms,1ms,1.5ms,2ms,4ms,50ms --subscribe shard
    line 8 "result, mean, scalog / belfast, by ms of computing" "$(ratios speculate-compute result_mean_us scalog belfast compute_ms)"
fi
if wanted 9; then
    run speculate-append latency --order $cuts --rtt 0.2ms --replicas 2 --rate 2000 --shards 2,4,10
    line 9 "append, mean, belfast / scalog, by shards" "$(ratios speculate-append mean_us belfast scalog shards)"
    line 9 "append, median, the same" "$(ratios speculate-append p50_us belfast scalog shards)"
fi
# before_during_after NAME: result means by third.
before_during_after() {
    for part in before during after; do
        line "$2" "result, mean, scalog / belfast, $part; belfast in us" \
            "$(ratios "$1" "result_${part}_us" scalog belfast); $(values "$1" "result_${part}_us" belfast)"
    done
}
if wanted 10; then
    run speculate-burst speculate --order $cuts "${far[@]}" --shards 2 --compute 0.8ms --burst 5
    before_during_after speculate-burst 10
fi
if wanted 11; then
    run speculate-change speculate --order $cuts "${far[@]}" --shards 2 --compute 0.8ms --change 3
    before_during_after speculate-change 11
    line 11 "belfast: records and positions without one, per second" \
        "$(values speculate-change rate_per_s belfast); $(values speculate-change empty_per_s belfast)"
fi
if wanted 12; then
    run speculate-window speculate --order $cuts "${far[@]}" --shards 2 --compute 1.5ms --window 5,20,50,100,300
    line 12 "result, mean, scalog / belfast, by window" "$(ratios speculate-window result_mean_us scalog belfast window)"
    line 12 "append, mean, belfast in us, by window" "$(values speculate-window append_mean_us belfast window)"
fi
if wanted 13; then
    run speculate-grow grow --order $cuts --size 4096
    line 13 "appends per second, belfast / scalog; the longest time without one, ms, scalog and belfast" \
        "$(ratios speculate-grow rate_per_s belfast scalog); $(values speculate-grow gap_ms scalog), $(values speculate-grow gap_ms belfast)"
fi
if wanted 14; then
    run speculate-scale speculate --order $cuts "${far[@]}" --shards 2,4,6,8,10 --compute 1.2ms
    line 14 "result, mean, scalog / belfast, by shards" "$(ratios speculate-scale result_mean_us scalog belfast shards)"
fi
if wanted 15; then
    run speculate-slow speculate --order $cuts "${far[@]}" --shards 2 --compute 0.8ms --slow 3ms
    before_during_after speculate-slow 15
fi
if wanted 16; then
    for example in intrusion_detection fraud_monitoring pair_trading; do
        line 16 "$example" "$("$examples/$example" | grep '^belfast: .*as soon' | sed 's/^belfast: //')"
    done
fi
if wanted 17; then
    run speculate-kill speculate --order $cuts --rtt 0.2ms --rate 2000 --replicas 3 --shards 2 --compute 2.2ms --kill replica
    before_during_after speculate-kill 17
    line 17 "belfast: records whose results were taken back" "$(values speculate-kill failed belfast)"
    run speculate-kill-shard speculate --order $cuts "${far[@]}" --durability disk --shards 3 --compute 2.2ms --kill shard
    before_during_after speculate-kill-shard 17
    line 17 "belfast, a whole shard: before, during, after, us; records whose results were taken back" \
        "$(values speculate-kill-shard result_before_us belfast), $(values speculate-kill-shard result_during_us belfast), $(values speculate-kill-shard result_after_us belfast); $(values speculate-kill-shard failed belfast)"
fi
