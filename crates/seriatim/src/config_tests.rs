use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use super::*;

const EXAMPLE: &str = include_str!("../../../docs/seriatim.example.toml");

/// The example with every commented-out setting (`#key = value`) enabled.
fn whole_example() -> String {
    let switch_on = |line: &str| match line.strip_prefix('#') {
        Some(setting) if setting.starts_with(|c: char| c.is_ascii_lowercase()) => setting.to_owned(),
        _ => line.to_owned(),
    };
    EXAMPLE.lines().map(switch_on).collect::<Vec<_>>().join("\n")
}

/// Keys that a section knows, from the parser's message about an unknown key.
fn known_keys<T: DeserializeOwned + std::fmt::Debug>() -> BTreeSet<String> {
    let refusal = toml::from_str::<T>("no_such_key = 1").unwrap_err();
    let (_, listed) = refusal.message().split_once("expected one of ").expect("it lists what it knows");
    listed.split(", ").map(|key| key.trim_matches('`').to_owned()).collect()
}

fn keys(table: &toml::Table) -> BTreeSet<String> {
    table.keys().cloned().collect()
}

#[test]
fn the_example_can_be_used_as_it_is() {
    let options = parse(EXAMPLE).unwrap();
    assert_eq!(options.run.limits, Limits::default());
    assert!(matches!(options.register, RegisterOptions::Etcd(_)));
}

#[test]
fn the_example_has_every_setting_and_no_other() {
    let whole: toml::Table = toml::from_str(&whole_example()).unwrap();
    assert_eq!(keys(&whole), known_keys::<ConfigFile>());
    let section = |name: &str| keys(whole[name].as_table().unwrap());
    assert_eq!(section("register"), known_keys::<RegisterSection>());
    assert_eq!(section("limits"), known_keys::<LimitsSection>());
    let file: ConfigFile = toml::from_str(&whole_example()).unwrap();
    let limits = file.limits.unwrap().limits(Limits::default()).unwrap();
    assert_eq!(limits, Limits::default(), "what the example says is usual is usual");
}

fn refused(text: &str) -> String {
    let error = parse(text).unwrap_err();
    assert!(!error.contains('\n'), "one line: {error}");
    error
}

#[test]
fn each_register_is_understood() {
    let with = |register: &str| {
        parse(&format!("id = 2\nlisten = \"h:1\"\ndata = \"d\"\n[register]\n{register}\n")).unwrap().register
    };
    assert_eq!(with("embedded = true"), RegisterOptions::Embedded);
    let node = RegisterOptions::Node { node: NodeId(1), address: "h:7".into() };
    assert_eq!(with("node = 1\naddress = \"h:7\""), node);
    let etcd = EtcdOptions { endpoints: vec!["http://a:1".into(), "http://b:1".into()], cluster: "c".into() };
    let written = "etcd = [\"http://a:1\", \"http://b:1\"]\ncluster = \"c\"";
    assert_eq!(with(written), RegisterOptions::Etcd(etcd));
}

#[test]
fn a_size_is_a_number_or_has_a_unit() {
    let with = |disk: &str, ring: &str, batch: &str| {
        let file = format!(
            "id = 1\nlisten = \"h:1\"\ndata = \"d\"\nmax_disk_bytes = {disk}\n[register]\nembedded = true\n\
             [limits]\nring_bytes = {ring}\nbatch_bytes = {batch}\n"
        );
        let NodeOptions { max_disk_bytes, limits, .. } = parse(&file).unwrap().run;
        (max_disk_bytes, limits.ring_bytes, limits.batch_bytes)
    };
    let expected = (Some(10 << 30), 16 << 20, 500_000);
    assert_eq!(with("\"10GiB\"", "\"16MiB\"", "\"500kB\""), expected);
    assert_eq!(with("10737418240", "16777216", "500000"), expected);
    assert_eq!(with("\"10737418240\"", "\"16777216B\"", "\"0.5MB\""), expected);
    let on_the_command_line =
        limits(&["ring_bytes=16MiB".into(), "batch_bytes=500000".into()], Limits::default()).unwrap();
    assert_eq!((on_the_command_line.ring_bytes, on_the_command_line.batch_bytes), (16 << 20, 500_000));
    let refusal = limits(&["heartbeats_missed=5MiB".into()], Limits::default()).unwrap_err();
    assert!(refusal.starts_with("--limit: ") && refusal.contains("5MiB"), "{refusal}");
}

#[test]
fn what_is_wrong_is_said_with_its_key_and_what_would_be_right() {
    let good = "id = 1\nlisten = \"127.0.0.1:1\"\ndata = \"d\"\n[register]\nembedded = true\n";
    parse(good).unwrap();
    for (from, to, words) in [
        ("id = 1", "id = 0", &["'id'", "from 1"][..]),
        ("id = 1", "id = \"one\"", &["line 1", "id = \"one\"", "expected u32"]),
        ("id = 1", "idd = 1", &["line 1", "`idd`", "`id`"]),
        ("id = 1\n", "", &["missing field `id`"]),
        ("127.0.0.1:1", "127.0.0.1", &["'listen'", "127.0.0.1", "HOST:PORT"]),
        ("data = \"d\"", "data = \"\"", &["'data'", "directory"]),
        ("data = \"d\"", "data = \"d\"\nadvertise = \"h:0\"", &["'advertise'", "HOST:PORT"]),
        ("data = \"d\"", "data = \"d\"\nmax_disk_bytes = 1000", &["'max_disk_bytes'", "at least 536870912"]),
        (
            "data = \"d\"",
            "data = \"d\"\nmax_disk_bytes = \"10 gigs\"",
            &["line 4", "'10 gigs' is not a number of bytes", "10GiB"],
        ),
        (
            "data = \"d\"",
            "data = \"d\"\nmax_disk_bytes = \"1MiB\"",
            &["'max_disk_bytes'", "at least 536870912"],
        ),
        ("data = \"d\"", "data = \"d\"\nmax_disk_bytes = true", &["line 4", "max_disk_bytes", "\"10GiB\""]),
        ("data = \"d\"", "data = \"d\"\nmax_disk_bytes = -1", &["line 4", "max_disk_bytes", "\"10GiB\""]),
        ("true\n", "true\n[limits]\nring_bytes = \"1GiB\"\n", &["'limits.ring_bytes'", "from 1 to"]),
        (
            "true\n",
            "true\n[limits]\ndisk_warn_percent = 101\n",
            &["'limits.disk_warn_percent'", "from 0 to 100"],
        ),
        ("embedded = true", "embedded = false", &["[register]", "'etcd' and 'cluster'", "'embedded = true'"]),
        ("embedded = true", "embedded = true\nnode = 2", &["exactly one of"]),
        ("embedded = true", "", &["[register]", "exactly one of"]),
        ("embedded = true", "node = 1\naddress = \"h:1\"", &["'register.node'", "'embedded = true'"]),
        ("embedded = true", "node = 2\naddress = \"h\"", &["'register.address'", "HOST:PORT"]),
        ("embedded = true", "etcd = [\"h:1\"]\ncluster = \"c\"", &["'register.etcd'", "h:1", "http://"]),
        ("embedded = true", "etcd = []\ncluster = \"c\"", &["'register.etcd'", "empty"]),
        ("embedded = true", "etcd = [\"http://h:1\"]", &["'register.cluster'", "missing"]),
        ("embedded = true", "etcd = [\"http://h:1\"]\ncluster = \"a/b\"", &["'register.cluster'", "a/b"]),
        ("true\n", "true\n[limits]\nring_records = 0\n", &["'limits.ring_records'", "from 1 to"]),
        (
            "true\n",
            "true\n[limits]\nsession_idle_positions = 20\n",
            &["line 7", "session_idle_positions", "log create --session-idle-positions", "all nodes"],
        ),
        ("true\n", "true\n[limits]\nheartbeats_missed = 1\n", &["'limits.heartbeats_missed'", "from 2 to"]),
        ("true\n", "true\n[limits]\nring = 1\n", &["`ring`", "`ring_bytes`"]),
    ] {
        assert!(good.contains(from), "{from}");
        let error = refused(&good.replacen(from, to, 1));
        for word in words {
            assert!(error.contains(word), "{to}: '{error}' does not say {word}");
        }
    }
}

#[test]
fn the_file_is_named_and_data_lies_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node.toml");
    let error = read(&path).unwrap_err().to_string();
    assert!(error.starts_with(path.to_str().unwrap()), "{error}");
    std::fs::write(&path, "id = 1\nlisten = \"h:1\"\ndata = \"d\"\n[register]\nembedded = true\n").unwrap();
    assert_eq!(read(&path).unwrap().data, directory.path().join("d"));
}
