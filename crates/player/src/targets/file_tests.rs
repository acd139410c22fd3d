use tempfile::TempDir;

use super::super::suite::{Fixture, Restored, attach, batch, entries, message, passes, stream};
use super::*;

struct Lines {
    directory: TempDir,
}

impl Lines {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("lines")
    }

    fn bound(&self) -> PathBuf {
        self.directory.path().join("lines.bound")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap()
    }

    /// Adds bytes, as a player that ends before its commit.
    fn add(&self, text: &str) {
        OpenOptions::new().append(true).open(self.path()).unwrap().write_all(text.as_bytes()).unwrap();
    }
}

fn copy_of(path: &Path) -> PathBuf {
    let mut copy = path.to_owned().into_os_string();
    copy.push(".copy");
    copy.into()
}

impl Fixture for Lines {
    type Target = FileTarget;

    fn target(&self) -> FileTarget {
        FileTarget::new("lines", self.path(), "\n")
    }

    async fn effects(&self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }
}

impl Restored for Lines {
    async fn save(&mut self) {
        for path in [self.path(), self.bound()] {
            std::fs::copy(&path, copy_of(&path)).unwrap();
        }
    }

    async fn restore(&mut self) {
        for path in [self.path(), self.bound()] {
            std::fs::copy(copy_of(&path), &path).unwrap();
        }
    }
}

fn attach_reason(result: Result<Position, AttachError>) -> String {
    match result {
        Err(AttachError::Broken { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

fn apply_reason(result: Result<(), ApplyError>) -> String {
    match result {
        Err(ApplyError::Broken { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_file_passes_the_suite() {
    passes(Lines::new()).await;
}

#[tokio::test]
async fn bytes_beyond_the_bound_are_cut_off() {
    let lines = Lines::new();
    let mut target = lines.target();
    attach(&mut target, 1).await.unwrap();
    target.apply(&batch(0, 2, [0, 1])).await.unwrap();
    drop(target);
    lines.add("entry 2\nent");
    let mut target = lines.target();
    assert_eq!(attach(&mut target, 2).await, Ok(Position(2)));
    assert_eq!(lines.effects().await, entries([0, 1]));
    lines.add("foreign");
    assert_eq!(target.apply(&batch(2, 3, [2])).await, Ok(()));
    assert_eq!(lines.effects().await, entries([0, 1, 2]));
}

#[tokio::test]
async fn a_second_session_waits_for_the_lock() {
    let lines = Lines::new();
    let (mut first, mut second) = (lines.target(), lines.target());
    attach(&mut first, 1).await.unwrap();
    let reason = attach_reason(attach(&mut second, 2).await);
    let expected =
        format!("another process has locked {0}; end that player (`fuser {0}`", lines.path().display());
    assert!(reason.starts_with(&expected), "{reason}");
    assert_eq!(first.apply(&batch(0, 1, [0])).await, Ok(()));
    drop(first);
    assert_eq!(attach(&mut second, 2).await, Ok(Position(1)));
}

#[tokio::test]
async fn each_part_ends_with_the_separator() {
    let lines = Lines::new();
    let mut target = FileTarget::new("lines", lines.path(), " | ");
    std::fs::write(lines.path(), "head\n").unwrap();
    attach(&mut target, 1).await.unwrap();
    let messages = vec![message(0, &["a", "b"]), message(1, &["c"])];
    target.apply(&Batch { after: Position(0), upto: Position(2), messages }).await.unwrap();
    assert_eq!(lines.text(), "head\na | b | c | ");
}

#[tokio::test]
async fn a_shortened_file_stops_its_target_until_it_is_restored() {
    let mut lines = Lines::new();
    let mut target = lines.target();
    attach(&mut target, 1).await.unwrap();
    target.apply(&batch(0, 2, [0, 1])).await.unwrap();
    lines.save().await;
    let expected = "has 3 bytes, but 16 at bound 2: another program shortened or replaced it; restore it";
    std::fs::write(lines.path(), "new").unwrap();
    let reason = apply_reason(target.apply(&batch(2, 3, [2])).await);
    assert!(reason.contains(expected), "{reason}");
    for result in [
        attach(&mut target, 1).await.map(|_| ()).map_err(|error| format!("{error:?}")),
        target.check(&stream(7)).await.map(|_| ()),
    ] {
        let reason = result.unwrap_err();
        assert!(reason.contains(expected), "{reason}");
    }
    assert_eq!(lines.text(), "new");
    lines.restore().await;
    assert_eq!(attach(&mut target, 1).await, Ok(Position(2)));
    // A rotation.
    std::fs::rename(lines.path(), lines.directory.path().join("lines.1")).unwrap();
    let reason = apply_reason(target.apply(&batch(2, 3, [2])).await);
    assert!(reason.starts_with("cannot find"), "{reason}");
    let reason = attach_reason(attach(&mut target, 1).await);
    assert!(reason.starts_with("cannot open"), "{reason}");
    assert!(!lines.path().exists(), "a file with a bound is not created again");
}

#[tokio::test]
async fn a_replaced_file_breaks_the_session() {
    let mut lines = Lines::new();
    let mut target = lines.target();
    attach(&mut target, 1).await.unwrap();
    target.apply(&batch(0, 2, [0, 1])).await.unwrap();
    lines.save().await;
    std::fs::rename(copy_of(&lines.path()), lines.path()).unwrap();
    let reason = apply_reason(target.apply(&batch(2, 3, [2])).await);
    assert!(reason.starts_with("another program replaced"), "{reason}");
    assert_eq!(attach(&mut target, 1).await, Ok(Position(2)));
    assert_eq!(target.apply(&batch(2, 3, [2])).await, Ok(()));
    assert_eq!(lines.effects().await, entries([0, 1, 2]));
}

#[tokio::test]
async fn an_unwritable_place_breaks_the_session() {
    let lines = Lines::new();
    let mut target = lines.target();
    attach(&mut target, 1).await.unwrap();
    // A directory in the place of the new bound.
    std::fs::create_dir(lines.directory.path().join("lines.bound.new")).unwrap();
    let reason = apply_reason(target.apply(&batch(0, 1, [0])).await);
    assert!(reason.starts_with("cannot write"), "{reason}");
    std::fs::remove_dir(lines.directory.path().join("lines.bound.new")).unwrap();
    assert_eq!(attach(&mut target, 1).await, Ok(Position(0)));
    assert_eq!(lines.text(), "", "the batch was not committed");
    let mut full = FileTarget::new("full", "/dev/full".into(), "\n");
    let reason = attach_reason(attach(&mut full, 1).await);
    assert!(reason.contains("/dev/full"), "{reason}");
}

#[tokio::test]
async fn a_damaged_bound_is_reported() {
    let lines = Lines::new();
    for text in ["", "{}", "{\"format\":2,\"stream\":\"7/billing\",\"epoch\":1,\"bound\":0,\"length\":0}"] {
        std::fs::write(lines.bound(), text).unwrap();
        std::fs::write(lines.path(), "").unwrap();
        let reason = attach_reason(attach(&mut lines.target(), 1).await);
        assert!(reason.contains("lines.bound is damaged, or a newer player wrote it"), "{reason}");
    }
    let text = "{\"format\":1,\"stream\":\"7/billing\",\"epoch\":1,\"bound\":4,\"length\":0}\n";
    std::fs::write(lines.bound(), text).unwrap();
    assert_eq!(attach(&mut lines.target(), 1).await, Ok(Position(4)));
    assert_eq!(std::fs::read_to_string(lines.bound()).unwrap(), text, "the format stays");
}

#[tokio::test]
async fn a_check_changes_nothing() {
    let lines = Lines::new();
    let creates = lines.bound().display().to_string();
    assert_eq!(lines.target().check(&stream(7)).await, Ok(Checked::New { creates }));
    assert_eq!(std::fs::read_dir(lines.directory.path()).unwrap().count(), 0);
    let mut target = lines.target();
    attach(&mut target, 3).await.unwrap();
    let bound = Checked::Bound { epoch: 3, bound: Position(0) };
    assert_eq!(lines.target().check(&stream(7)).await, Ok(bound), "also while a player holds the lock");
    let error = lines.target().check(&stream(8)).await.unwrap_err();
    assert!(error.contains("stores the bound 0 of another log"), "{error}");
    let nowhere = FileTarget::new("x", lines.directory.path().join("no/lines"), "\n");
    let error = nowhere.check(&stream(7)).await.unwrap_err();
    assert!(error.ends_with("/no does not exist; create it"), "{error}");
}
