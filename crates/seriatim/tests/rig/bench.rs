//! Checks that `seriatim bench` reports its figures, not how fast they are.

use std::path::Path;

use serde_json::Value;

use crate::command::{CommandLine, text};

async fn bench(directory: &Path, line: &str) -> (Value, String) {
    let json = directory.join("figures.json");
    let path = json.to_str().expect("a path in plain letters");
    let words = ["bench"].into_iter().chain(line.split_whitespace()).chain(["--json", path]);
    let printed = CommandLine::new("127.0.0.1:1").good(&words.collect::<Vec<_>>()).await;
    let written = std::fs::read(&json).expect("it is written");
    (serde_json::from_slice(&written).expect("it is JSON"), text(&printed).to_owned())
}

fn is_positive(figure: &Value) -> bool {
    figure.as_f64().is_some_and(|figure| figure > 0.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orderings_are_compared_with_the_floor_round_by_round() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("page.html");
    let report = page.to_str().expect("a path in plain letters");
    let line = "latency --closed --order erwin-bb,erwin-st --duration 1 --rounds 2 --size 100 --report";
    let (json, printed) = bench(directory.path(), &format!("{line} {report}")).await;
    for (row, name) in ["floor", "erwin-bb", "erwin-st"].into_iter().enumerate() {
        let row = &json["rows"][row];
        assert!(row["name"] == name && printed.contains(name), "{printed}{json}");
        assert_eq!(row["rounds"].as_array().map(Vec::len), Some(2), "{json}");
        for figures in [row, &row["rounds"][0], &row["rounds"][1]] {
            for figure in ["p50_us", "p90_us", "p99_us", "p999_us", "max_us", "mean_us"] {
                assert!(is_positive(&figures[figure]), "{figure}: {json}");
            }
            for figure in ["rate_per_s", "cpu_s_per_million", "floor_ratio_p50"] {
                assert!(is_positive(&figures[figure]), "{figure}: {json}");
            }
        }
    }
    let page = std::fs::read_to_string(&page).expect("it is written");
    for part in ["<!doctype html>", "<svg", "erwin-st", "x floor", line] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_delay_line_nothing_is_faster_than_a_round_trip() {
    let directory = tempfile::tempdir().expect("a directory");
    let line = "latency --rtt 20ms --rate 100 --order erwin-bb --duration 1 --rounds 1";
    let (json, printed) = bench(directory.path(), line).await;
    assert!(printed.contains("with 20ms between a message and its answer"), "{printed}");
    for row in [0, 1] {
        let row = &json["rows"][row];
        // A machine that is too busy reports no latency, with a note.
        let p50_us = row["p50_us"].as_f64();
        assert!(p50_us.is_some_and(|p50_us| p50_us >= 20_000.0) || row["note"].is_string(), "{json}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_benches_measure_something() {
    let directory = tempfile::tempdir().expect("a directory");
    for (line, row, figures) in [
        (
            "throughput --order erwin-bb --duration 1",
            1,
            &["rate_per_s", "stable_lag_ms", "stable_lag_p50_ms"][..],
        ),
        (
            "speculate --rate 100 --order corfu,erwin-st --subscribe shard --compute 0,1ms --duration 1",
            3,
            &[
                "append_p50_us",
                "delivery_p50_us",
                "confirm_p50_us",
                "result_mean_us",
                "predicted_percent",
                "compute_ms",
            ],
        ),
        (
            "speculate --rate 200 --size 100 --order scalog,belfast --window 5,300 --duration 1",
            2,
            &["rate_per_s", "append_mean_us", "confirm_mean_us", "result_p99_us", "window"],
        ),
        (
            "speculate --rate 200 --size 100 --order belfast --burst 3 --compute 0 --duration 1",
            0,
            &["result_before_us", "result_during_us", "result_after_us", "empty_per_s"],
        ),
        ("speculate --rate 200 --size 100 --order scalog --change 3 --duration 1", 0, &["result_during_us"]),
        (
            "speculate --rate 200 --size 100 --order belfast --slow 2ms --replicas 2 --duration 1",
            0,
            &["result_before_us", "result_during_us", "result_after_us"],
        ),
        (
            "speculate --rate 200 --size 100 --order belfast,erwin-st --kill replica --duration 1",
            1,
            &["result_before_us", "result_after_us"],
        ),
        (
            "speculate --rate 200 --size 100 --order belfast --kill shard --shards 3 --replicas 1 --durability disk --duration 2",
            0,
            &["result_before_us", "result_during_us", "result_after_us"],
        ),
        ("latency --rate 200 --size 100 --shards 1,2 --order belfast --duration 1", 2, &["p50_us", "shards"]),
        ("scale --shards 1..2 --order erwin-st --duration 1", 2, &["rate_per_s", "cpu_percent", "shards"]),
        (
            "read --rate 100 --lag 1ms --order erwin-st --duration 1",
            1,
            &["rate_per_s", "lag_ms", "append_p50_us"],
        ),
        ("read --rate 100 --lag 1ms --together 10 --order corfu --duration 1", 1, &["rate_per_s", "lag_ms"]),
        (
            "read --rate 100 --period 20ms --order erwin-bb --duration 1",
            1,
            &["rate_per_s", "period_ms", "p50_us"],
        ),
        ("metadata --duration 1 --batch 1,16", 1, &["names_per_s", "names_per_clock_s"]),
        ("grow --duration 1 --size 100 --order erwin-st", 0, &["rate_per_s", "gap_ms"]),
        // The duration of a stall round is fixed.
        ("stall --rtt 1ms", 0, &["gap_ms"]),
    ] {
        let (json, _) = bench(directory.path(), &format!("{line} --rounds 1")).await;
        for figure in figures {
            assert!(is_positive(&json["rows"][row][figure]), "{line}, {figure}: {json}");
        }
    }
}

#[tokio::test]
async fn a_disturbance_says_what_it_needs() {
    let cli = CommandLine::new("127.0.0.1:1");
    for (disturbance, needs) in [
        ("belfast,corfu --burst 2", "order corfu: its clients choose none"),
        ("belfast --slow 2ms", "replicas of 2 shards, and of 0 all: give --shards 2 --replicas 2"),
        ("belfast --kill shard --shards 3", "give --durability disk"),
        ("belfast --kill shard --shards 3 --durability disk --subscribe shard", "give --subscribe all"),
        ("belfast --kill shard --shards 2 --replicas 1 --durability disk", "give --shards 3"),
        ("belfast --kill replica --shards 2 --replicas 1", "give --shards 2 --replicas 2"),
    ] {
        let line = format!("bench speculate --duration 1 --rounds 1 --order {disturbance}");
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let (_, said) = cli.bad(&arguments).await;
        assert!(said.contains(needs), "{line}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_varied_and_drawn_and_put_into_a_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let line = "latency --rate 100,200 --size 100 --order erwin-bb,corfu --duration 1 --rounds 1";
    let (json, _) = bench(directory.path(), line).await;
    let settings: Vec<_> =
        json["rows"].as_array().into_iter().flatten().map(|row| &row["asked_per_s"]).collect();
    assert_eq!(settings, [100.0, 100.0, 100.0, 200.0, 200.0, 200.0]);

    let (recorded, page) = (directory.path().join("figures.json"), directory.path().join("page.md"));
    let (recorded, page) = (recorded.to_str().expect("plain letters"), page.to_str().expect("plain letters"));
    let cli = CommandLine::new("127.0.0.1:1");
    std::fs::write(page, "before\n").expect("it can be written");
    let (_, said) = cli.bad(&["bench", "plot", recorded, "--page", page]).await;
    assert!(said.contains("<!-- figures: figures -->"), "{said}");
    std::fs::write(page, "before\n<!-- figures: figures -->\n<!-- end: figures -->\nafter\n")
        .expect("as above");
    cli.good(&["bench", "plot", recorded, "--page", page]).await;
    let text = std::fs::read_to_string(page).expect("it is written");
    for part in
        ["before\n", line, "| corfu, 200/s |", "times as much as erwin-bb", "](figures.svg)", "after\n"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let drawing = std::fs::read_to_string(directory.path().join("figures.svg")).expect("it is drawn");
    assert!(drawing.starts_with("<svg") && drawing.contains("appends per second"), "{drawing}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bench_finds_the_gap_and_its_parts() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("page.html");
    let path = page.to_str().expect("a path in plain letters");
    let (report, printed) =
        bench(directory.path(), &format!("failover --order erwin-bb,corfu --rounds 2 --report {path}")).await;
    let names = ["erwin-bb, leader killed", "erwin-bb, follower killed", "corfu, sequencer killed"];
    for (index, name) in names.into_iter().enumerate() {
        let row = &report["rows"][index];
        assert!(row["name"] == name && printed.contains(name), "{printed}{report}");
        let round = &row["rounds"][0];
        assert!(is_positive(&round["gap_ms"]), "{report}");
        // A sequencer of `corfu` has no state to seal.
        let parts = ["detect", "claim", "seal", "fence", "flush", "stage", "register", "resume"];
        for part in parts.into_iter().filter(|part| !name.starts_with("corfu") || *part != "seal") {
            assert!(round[format!("{part}_ms")].is_f64(), "{part}: {report}");
        }
        let acknowledged: f64 =
            row["timeline_ms"].as_array().into_iter().flatten().filter_map(|point| point[1].as_f64()).sum();
        assert!(acknowledged > 0.0, "{report}");
    }
    let page = std::fs::read_to_string(&page).expect("it is written");
    assert!(page.contains("seal to flush") && page.matches("<svg").count() == 2, "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_bench_writes_a_report() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("page.html");
    let path = page.to_str().expect("a path in plain letters");
    let delays = "player --order erwin-bb --duration 1 --targets 3 --stop 1";
    let rates = "player --order erwin-bb --duration 1 --targets 2 --keys 1 --sink sqlite";
    for (line, part) in [
        ("metadata --duration 1", "names per s"),
        ("stall", "names without records"),
        (delays, "caught up ms"),
        (rates, "of direct"),
    ] {
        bench(directory.path(), &format!("{line} --rounds 1 --report {path}")).await;
        let page = std::fs::read_to_string(&page).expect("it is written");
        assert!(page.contains("<!doctype html>") && page.contains("<svg") && page.contains(part), "{page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_measured_or_written_is_told_at_once() {
    let cli = CommandLine::new("127.0.0.1:1");
    let (_, said) = cli.bad(&["bench", "latency", "--json", "/nowhere/figures.json"]).await;
    assert!(said.contains("/nowhere/figures.json"), "{said}");
    let wrong = cli.run(&["bench", "latency", "--rtt", "1s"]).await;
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("at most 50ms"), "{wrong:?}");
}
