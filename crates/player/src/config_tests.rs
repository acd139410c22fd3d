use serde::de::DeserializeOwned;

use super::*;

const EXAMPLE: &str = include_str!("../../../docs/player.example.toml");

const SQLITE: &str =
    "id = \"a\"\nkind = \"sqlite\"\npath = \"a.db\"\nstatement = \"insert into t values ($text)\"";

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("/etc/seriatim"))
}

/// A file with the lines `head` and one target.
fn with_head(head: &str) -> String {
    format!("log = \"orders\"\n{head}\n[[target]]\n{SQLITE}\n")
}

/// A file with one target.
fn with_target(target: &str) -> String {
    format!("log = \"orders\"\nmap = \"key\"\n[[target]]\n{target}\n")
}

/// Keys that a section knows, from the parser's message about an unknown key.
fn known_keys<T: DeserializeOwned + std::fmt::Debug>() -> BTreeSet<String> {
    let refusal = toml::from_str::<T>("no_such_key = 1").unwrap_err();
    let names = refusal.message().split_once(", expected ").expect("it lists the keys").1;
    names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_example_can_be_used_as_it_is() {
    let config = parse(EXAMPLE).unwrap();
    assert_eq!((config.log.as_str(), config.name.as_str()), ("orders", "orders"));
    assert_eq!((config.server.as_str(), config.from, config.pin), (DEFAULT_SERVER, From::Start, false));
    assert_eq!((config.queue_memory, config.apply_within_ms), (256 << 20, 30_000));
    assert_eq!((config.map, config.dead_letter), (Map::Key, None));
    let ids: Vec<_> = config.targets.iter().map(|target| target.id.as_str()).collect();
    assert_eq!(ids, ["ledger", "billing", "archive", "mailer", "search", "mirror"]);
    let path = |name: &str| Path::new("/etc/seriatim").join(name);
    let statement = |text, dialect| Statement::parse(text, dialect).unwrap();
    let sqlite = statement("insert into entries (position, body) values ($position, $text)", Dialect::Sqlite);
    assert_eq!(
        config.targets[0].kind,
        Kind::Sqlite {
            path: path("ledger.db"),
            setup: Some(
                "create table if not exists entries (position integer primary key, body text)".into()
            ),
            statements: vec![sqlite]
        }
    );
    let Kind::Postgres { statements, password, .. } = &config.targets[1].kind else { panic!("postgres") };
    assert_eq!((statements.len(), password), (2, &None));
    let separator = "\n".to_owned();
    assert_eq!(config.targets[2].kind, Kind::File { path: path("archive.jsonl"), separator });
    assert_eq!(config.targets[3].kind, Kind::Grpc { url: "http://127.0.0.1:7900".into() });
    let url = "http://127.0.0.1:7901/entries".into();
    let http = Kind::Http { url, contract: Contract::Bound, token: None, ca_file: None };
    assert_eq!(config.targets[4].kind, http);
    let log = Kind::Log { server: DEFAULT_SERVER.into(), log: "orders-copy".into() };
    assert_eq!(config.targets[5].kind, log);
}

#[test]
fn the_example_has_every_key_with_its_default() {
    let is_setting = |line: &str| {
        let key = line.split_once(" = ").map_or("", |(key, _)| key);
        !key.is_empty() && key.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
    };
    let switch_on = |line: &str| match line.strip_prefix('#') {
        Some(setting) if is_setting(setting) || setting == "[[route]]" => setting.to_owned(),
        _ => line.to_owned(),
    };
    let whole = EXAMPLE.lines().map(switch_on).collect::<Vec<_>>().join("\n");
    let table: toml::Table = toml::from_str(&whole).unwrap();
    let keys = |table: &toml::Table| table.keys().cloned().collect::<BTreeSet<_>>();
    let of_all = |list: &str| {
        let sections = table[list].as_array().unwrap();
        sections.iter().flat_map(|section| keys(section.as_table().unwrap())).collect::<BTreeSet<_>>()
    };
    assert_eq!(keys(&table), known_keys::<ConfigFile>());
    assert_eq!(keys(table["queue"].as_table().unwrap()), known_keys::<QueueSection>());
    assert_eq!(of_all("route"), known_keys::<RouteSection>());
    let mut of_targets = known_keys::<TargetSection>();
    for key in ["password", "token"] {
        assert!(of_targets.remove(key), "a key that only produces an error");
    }
    assert_eq!(of_all("target"), of_targets);
    // With the routes and without the alternatives to other keys, it is a valid file.
    let alternatives = ["map = ", "password_env = ", "token_env = ", "content_type = ", "ca_file = "];
    let lines = whole.lines().filter(|line| !alternatives.iter().any(|key| line.starts_with(key)));
    let config = parse(&lines.collect::<Vec<_>>().join("\n")).unwrap();
    let usual = parse(EXAMPLE).unwrap();
    assert_eq!(config.dead_letter.as_deref(), Some("orders.dead"));
    assert_eq!(Config { map: Map::Key, dead_letter: None, targets: usual.targets.clone(), ..config }, usual);
    let filter = |at: usize| match &config.map {
        Map::Routes { routes, all: false } => (routes[at].to.clone(), routes[at].filter.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(filter(0), ("billing".into(), Some(Filter::key_prefix("invoice/"))));
    assert_eq!(filter(1), ("mailer".into(), Some(Filter::header(40, "mail"))));
    assert_eq!(filter(2), ("archive".into(), None));
}

#[test]
fn values_are_understood() {
    let head = "name = \"billing\"\nserver = \"db:1\"\nmap = \"wal\"\npin = true\nqueue.memory_mib = 16";
    let config = parse(&with_head(head)).unwrap();
    assert_eq!((config.name.as_str(), config.server.as_str(), config.map), ("billing", "db:1", Map::Wal));
    assert_eq!((config.pin, config.queue_memory), (true, 16 << 20));
    let from = |value: &str| parse(&with_head(&format!("map = \"key\"\nfrom = {value}"))).unwrap().from;
    assert_eq!(from("\"start\""), From::Start);
    assert_eq!(from("\"tail\""), From::Tail);
    assert_eq!(from("17"), From::Position(Position(17)));
    let password = |key: &str| {
        let target =
            format!("id = \"a\"\nkind = \"postgres\"\nurl = \"host=h\"\nstatement = \"select 1\"\n{key}");
        match parse(&with_target(&target)).unwrap().targets.remove(0).kind {
            Kind::Postgres { password, .. } => password,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(password(""), None);
    assert_eq!(password("password_file = \"p\""), Some(Secret::File("/etc/seriatim/p".into())));
    assert_eq!(password("password_file = \"/run/p\""), Some(Secret::File("/run/p".into())));
    assert_eq!(password("password_env = \"P\""), Some(Secret::Variable("P".into())));
    let http = |keys: &str| {
        let target = format!("id = \"a\"\nkind = \"http\"\nurl = \"https://h/\"\n{keys}");
        parse(&with_target(&target)).unwrap().targets.remove(0).kind
    };
    let keyed = http("contract = \"key\"\ntoken_file = \"t\"\nca_file = \"c\"");
    let expected = Kind::Http {
        url: "https://h/".into(),
        contract: Contract::Key { content_type: "application/octet-stream".into() },
        token: Some(Secret::File("/etc/seriatim/t".into())),
        ca_file: Some("/etc/seriatim/c".into()),
    };
    assert_eq!(keyed, expected);
    let typed = http("contract = \"key\"\ncontent_type = \"text/plain\"\ntoken_env = \"T\"");
    let contract = Contract::Key { content_type: "text/plain".into() };
    let token = Some(Secret::Variable("T".into()));
    assert_eq!(typed, Kind::Http { url: "https://h/".into(), contract, token, ca_file: None });
    let target = format!("{SQLITE}\non_reject = \"dead-letter\"");
    let config = parse(&format!("dead_letter = \"bad\"\n{}", with_target(&target))).unwrap();
    assert_eq!(config.targets[0].on_reject, OnReject::DeadLetter);
}

fn refused(text: &str) -> String {
    let error = parse(text).unwrap_err();
    assert!(!error.contains('\n'), "one line: {error}");
    error
}

#[test]
fn mistakes_in_the_head_are_reported_in_one_sentence() {
    let cases = [
        ("maps = \"key\"", "line 2: unknown field `maps`, expected one of `log`, `name`,"),
        ("", "it does not say which entries a target receives; add map = \"key\""),
        ("map = \"hash\"", "`map` is 'hash'; it must be \"wal\" or \"key\""),
        ("map = \"key\"\n[[route]]\nto = \"a\"", "there are both `map` and [[route]]; remove one of them"),
        ("map = \"key\"\nall = true", "`all` has a meaning only with [[route]]"),
        ("[[route]]\nto = \"b\"", "a [[route]] leads to 'b', which is no target of this file"),
        (
            "[[route]]\nto = \"a\"\nkey_prefix = \"x\"\nheader = { kind = 1 }",
            "a [[route]] to 'a' has both `key_prefix` and `header`; use two routes",
        ),
        ("[[route]]\nto = \"a\"\nprefix = \"x\"", "line 4: unknown field `prefix`"),
        ("map = \"key\"\nname = \"a b\"", "`name`: 'a b' cannot name a log: use up to 128 letters"),
        ("map = \"key\"\nserver = \"localhost\"", "`server` is 'localhost'; it must be HOST:PORT"),
        ("map = \"key\"\nfrom = \"end\"", "`from` is \"end\"; it must be \"start\", \"tail\" or a position"),
        ("map = \"key\"\nfrom = -1", "`from` is -1; it must be"),
        ("map = \"key\"\nqueue.memory_mib = 1", "`memory_mib` is 1; it must be from 16 to 1048576"),
        ("map = \"key\"\napply_within_ms = 1", "`apply_within_ms` is 1; it must be from 100 to 3600000"),
        (
            "map = \"key\"\ndead_letter = \"orders\"",
            "`dead_letter` is 'orders', the log that the player reads",
        ),
        ("map = \"key\"\ndead_letter = \"-\"", "`dead_letter`: '-' cannot name a log"),
        ("map = \"key\"\npin = 1", "line 3: invalid type: integer `1`, expected a boolean"),
    ];
    for (head, expected) in cases {
        let error = refused(&with_head(head));
        assert!(error.starts_with(expected), "{head}: {error}");
    }
    assert!(refused("map = \"key\"").contains("missing field `log`"));
    let long = format!("map = \"key\"\nname = \"{}\"", "n".repeat(122));
    assert!(refused(&with_head(&long)).contains("the control log is nnn"));
}

#[test]
fn mistakes_in_the_targets_are_reported_in_one_sentence() {
    let cases = [
        (
            "id = \"a\"\nkind = \"mysql\"",
            "target 'a': the kind 'mysql' is unknown; the kinds are sqlite, file,",
        ),
        ("id = \"a b\"\nkind = \"file\"\npath = \"f\"", "`id`: 'a b' cannot name a target: use up to 128"),
        ("id = \"a\"\nkind = \"file\"", "target 'a': `path` is missing"),
        ("id = \"a\"\nkind = \"grpc\"", "target 'a': `url` is missing"),
        (
            "id = \"a\"\nkind = \"file\"\npath = \"f\"\nstatement = \"x\"",
            "target 'a': `statement` has no meaning for the kind file; its keys are path, separator",
        ),
        ("id = \"a\"\nkind = \"file\"\npath = \"f\"\nmode = 1", "line 7: unknown field `mode`"),
        (
            "id = \"a\"\nkind = \"sqlite\"\npath = \"f\"",
            "target 'a': `statement` is missing; it is the SQL that",
        ),
        (
            "id = \"a\"\nkind = \"sqlite\"\npath = \"f\"\nstatement = []",
            "target 'a': `statement` must be SQL in a string, or a list of such strings",
        ),
        (
            "id = \"a\"\nkind = \"sqlite\"\npath = \"f\"\nstatement = \"insert into t values ($body)\"",
            "target 'a': the statement 'insert into t values ($body)' has the unknown parameter $body; the parameters",
        ),
        (
            "id = \"a\"\nkind = \"sqlite\"\npath = \"f\"\nstatement = [\"delete from t; delete from u\"]",
            "target 'a': the statement 'delete from t; delete from u' holds two statements; write a list",
        ),
        (
            "id = \"a\"\nkind = \"sqlite\"\npath = \"f\"\nstatement = [\"delete from t\", \"commit\"]",
            "target 'a': the statement 'commit' begins or ends a transaction; remove it",
        ),
        (
            "id = \"a\"\nkind = \"file\"\npath = \"f\"\non_reject = \"skip\"",
            "line 7: unknown variant `skip`, expected `stop` or `dead-letter`",
        ),
        (
            "id = \"a\"\nkind = \"file\"\npath = \"f\"\non_reject = \"dead-letter\"",
            "target 'a' has on_reject = \"dead-letter\"; add `dead_letter`, the name of the log",
        ),
        (
            "id = \"a\"\nkind = \"postgres\"\nurl = \"mysql://h\"\nstatement = \"select 1\"",
            "target 'a': `url` is not an address of PostgreSQL: invalid connection string",
        ),
        (
            "id = \"a\"\nkind = \"postgres\"\nurl = \"host=h\"\nstatement = \"select 1\"\npassword_env = \"A\"\n\
             password_file = \"b\"",
            "target 'a': there are both `password_file` and `password_env`; remove one of them",
        ),
        (
            "id = \"a\"\nkind = \"postgres\"\nurl = \"host=h\"\nstatement = \"select 1\"\nca_file = \"c\"",
            "target 'a': `ca_file` has a meaning only for TLS; add sslmode=require to `url`",
        ),
    ];
    for (target, expected) in cases {
        let error = refused(&with_target(target));
        assert!(error.starts_with(expected), "{target}: {error}");
    }
}

#[test]
fn mistakes_in_a_receiver_are_reported_in_one_sentence() {
    let http = "id = \"a\"\nkind = \"http\"\nurl = \"http://h\"\n";
    let cases = [
        ("contract = \"none\"", "target 'a': `contract` is 'none'; it must be \"bound\" or \"key\""),
        (
            "content_type = \"text/plain\"",
            "target 'a': `content_type` has a meaning only with contract = \"key\"",
        ),
        (
            "contract = \"key\"\ncontent_type = \"text/\\nplain\"",
            "target 'a': `content_type` is 'text/\\nplain'; it must be a media type, as in",
        ),
        ("contract = \"key\"\ncontent_type = \"json\"", "target 'a': `content_type` is 'json'; it must be"),
        ("ca_file = \"c\"", "target 'a': `ca_file` has a meaning only for TLS; give an https url"),
        ("token_env = \"T\"\ntoken_file = \"t\"", "target 'a': there are both `token_file` and `token_env`"),
        ("token = \"hidden\"", "target 'a': there is a token in the configuration; move it into a file"),
        (
            "separator = \"\"",
            "target 'a': `separator` has no meaning for the kind http; its keys are url, contract",
        ),
    ];
    for (keys, expected) in cases {
        let error = refused(&with_target(&format!("{http}{keys}")));
        assert!(error.starts_with(expected) && !error.contains("hidden"), "{keys}: {error}");
    }
}

#[test]
fn mistakes_in_a_log_are_reported_in_one_sentence() {
    let log = "id = \"a\"\nkind = \"log\"\n";
    let kind = |keys: &str| parse(&with_target(&format!("{log}{keys}"))).unwrap().targets.remove(0).kind;
    let elsewhere = Kind::Log { server: "db:1".into(), log: "orders".into() };
    assert_eq!(kind("log = \"orders\"\nserver = \"db:1\""), elsewhere);
    let cases = [
        ("", "target 'a': `log` is missing; it is the name of the log that receives the entries"),
        ("log = \"a b\"", "target 'a': `log`: 'a b' cannot name a log"),
        (
            "log = \"orders\"",
            "target 'a': `log` is 'orders', the log that the player reads; name another log",
        ),
        ("log = \"copy\"\nserver = \"db\"", "target 'a': `server` is 'db'; it must be HOST:PORT"),
        (
            "log = \"copy\"\npath = \"p\"",
            "target 'a': `path` has no meaning for the kind log; its keys are log, server",
        ),
    ];
    for (keys, expected) in cases {
        let error = refused(&with_target(&format!("{log}{keys}")));
        assert!(error.starts_with(expected), "{keys}: {error}");
    }
}

#[test]
fn a_password_in_the_file_is_refused_and_not_shown() {
    for line in [
        "url = \"postgres://seriatim:hidden@h/ledger\"",
        "url = \"postgres://seriatim@h/ledger?password=hidden\"",
        "url = \"host=h password=hidden\"",
        "url = \"host=h\"\npassword = \"hidden\"",
    ] {
        let target = format!("id = \"a\"\nkind = \"postgres\"\n{line}\nstatement = \"select 1\"");
        let expected = "target 'a': there is a password in the configuration; move it into a file of its own that \
            `password_file` names, or into an environment variable that `password_env` names";
        assert_eq!(refused(&with_target(&target)), expected);
    }
}

#[test]
fn the_number_of_targets_and_their_names_are_checked() {
    let none = "log = \"orders\"\nmap = \"key\"";
    assert_eq!(refused(none), "there is no target; add a [[target]] with `id` and `kind`");
    let target =
        |id: &str, path: &str| format!("[[target]]\nid = \"{id}\"\nkind = \"file\"\npath = \"{path}\"\n");
    let twice = format!("{none}\n{}{}", target("a", "f"), target("a", "g"));
    assert_eq!(refused(&twice), "two targets have the id 'a'; each needs an id of its own");
    let shared = format!("{none}\n{}{}", target("a", "f"), target("b", "f"));
    let expected = "target 'b': another target writes to /etc/seriatim/f, too; use another path";
    assert_eq!(refused(&shared), expected);
    let numbered = |count: usize| {
        let targets = (0..count).map(|at| target(&at.to_string(), &at.to_string())).collect::<String>();
        format!("{none}\n{targets}")
    };
    assert_eq!(parse(&numbered(1024)).unwrap().targets.len(), 1024);
    let expected =
        "there are 1025 targets, but a player serves at most 1024; divide them among several players";
    assert_eq!(refused(&numbered(1025)), expected);
}

#[test]
fn a_file_is_named_in_its_errors() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("player.toml");
    let error = Config::load(&path).unwrap_err();
    assert!(error.starts_with("cannot read the configuration") && error.contains("player.toml"), "{error}");
    std::fs::write(&path, with_head("")).unwrap();
    let error = Config::load(&path).unwrap_err();
    assert!(error.starts_with(&format!("{}: it does not say", path.display())), "{error}");
    std::fs::write(&path, with_head("map = \"key\"")).unwrap();
    let Kind::Sqlite { path, .. } = &Config::load(&path).unwrap().targets[0].kind else { panic!("sqlite") };
    assert_eq!(*path, directory.path().join("a.db"));
}
