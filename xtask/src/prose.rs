//! Measures how plain the project's texts are: markers, words in comments, long lines.
//!
//! A marker is a match of one of [`PATTERNS`]. Text in backquotes does not count.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::source;
use crate::workspace::{TextFile, Workspace};

/// Phrases that hide the actor or the object. Each word is one of several.
pub const PATTERNS: &[&[&[&str]]] = &[
    &[&["is", "are", "was", "were", "been"], &["told"]],
    &[&["go", "goes", "went"], &["on"]],
    &[&["let", "lets"], &["go"]],
    &[&["so"], &["many", "much"]],
    &[&["of"], &["which"]],
    &[&["nobody", "somebody", "anybody"]],
    &[&["one", "ones", "those", "that"], &["that"]],
    &[&["what"], &["is", "was", "it", "they", "has", "had", "came", "comes", "follows", "others"]],
    &[&["is", "are"], &["to"], &["be"]],
    &[&["anew"]],
    &[&["for"], &["good"]],
    &[&["all"], &["the"], &["same"]],
    &[&["whatever", "whoever"]],
    &[&["as"], &["far"], &["as"]],
];

/// The most columns of a comment's line.
pub const COLUMNS: usize = 100;

/// Figures of texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Matches of [`PATTERNS`].
    pub markers: usize,
    /// Words outside of code.
    pub words: usize,
    /// Lines of comments with more than [`COLUMNS`] columns.
    pub long_lines: usize,
}

impl Figures {
    fn add(&mut self, other: Self) {
        self.markers += other.markers;
        self.words += other.words;
        self.long_lines += other.long_lines;
    }

    /// Markers per 1,000 words. 0 without words.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.words == 0 { 0.0 } else { self.markers as f64 * 1000.0 / self.words as f64 }
    }
}

/// A comment, a block of a page, or a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paragraph {
    /// First line, from 1.
    pub line: usize,
    /// Number of lines.
    pub lines: usize,
    /// Text without comment signs.
    pub text: String,
}

/// Words and markers of a text.
#[must_use]
pub fn figures_of(text: &str) -> Figures {
    let words = words(text);
    let starts = 0..words.len();
    let markers =
        starts.map(|at| PATTERNS.iter().filter(|pattern| begins(&words[at..], pattern)).count()).sum();
    Figures { markers, words: words.len(), long_lines: 0 }
}

fn begins(words: &[String], pattern: &[&[&str]]) -> bool {
    words.len() >= pattern.len()
        && pattern.iter().zip(words).all(|(choices, word)| choices.contains(&word.as_str()))
}

pub(crate) fn words(text: &str) -> Vec<String> {
    let prose = text.split('`').step_by(2);
    let words = prose.flat_map(|part| part.split(|c: char| !c.is_alphabetic() && c != '\'' && c != '-'));
    words.filter(|word| word.chars().any(char::is_alphabetic)).map(str::to_lowercase).collect()
}

/// Comments of a Rust file. Adjacent comment lines are one.
#[must_use]
pub fn comments(file: &TextFile) -> Vec<Paragraph> {
    let mut comments: Vec<Paragraph> = vec![];
    for ((line, text), code) in file.lines().zip(file.code.lines()) {
        let Some(comment) = comment_in(text, code) else { continue };
        let is_alone = code.trim().is_empty();
        match comments.last_mut().filter(|last| is_alone && last.line + last.lines == line) {
            Some(last) => {
                last.lines += 1;
                last.text = format!("{}\n{comment}", last.text);
            }
            None => comments.push(Paragraph { line, lines: 1, text: comment.to_owned() }),
        }
    }
    comments
}

/// `code` has blanks in place of comments and strings.
fn comment_in<'a>(text: &'a str, code: &str) -> Option<&'a str> {
    let from = code.trim_end().len();
    let rest = text.get(from..)?;
    let comment = rest.trim_start().strip_prefix("//")?;
    Some(comment.trim_start_matches(['/', '!']).trim())
}

/// Strings of a Rust file with four words or more.
#[must_use]
pub fn sentences(file: &TextFile) -> Vec<Paragraph> {
    let strings = source::strings(&file.text).into_iter();
    let sentences = strings.map(|(line, text)| Paragraph { line, lines: 1, text });
    sentences.filter(|sentence| words(&sentence.text).len() >= 4).collect()
}

/// The text of a page, without blocks of code.
#[must_use]
pub fn page(file: &TextFile) -> String {
    let (mut is_code, mut out) = (false, String::new());
    for (_, line) in file.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let _ = writeln!(out, "{line}");
        }
    }
    out
}

/// Figures of each crate's comments, of its sentences outside of tests, and of each page.
#[must_use]
pub fn measure(workspace: &Workspace) -> BTreeMap<String, Figures> {
    let mut all: BTreeMap<String, Figures> = BTreeMap::new();
    for file in workspace.rust() {
        let Some(name) = crate_of(&file.path) else { continue };
        let of_comments = all.entry(format!("{name} comments")).or_default();
        for comment in comments(file) {
            of_comments.add(figures_of(&comment.text));
        }
        of_comments.long_lines += long_lines(file);
        if is_product(&file.path) {
            let of_strings = all.entry(format!("{name} strings")).or_default();
            sentences(file).iter().for_each(|sentence| of_strings.add(figures_of(&sentence.text)));
        }
    }
    for file in workspace.files().iter().filter(|file| file.path.ends_with(".md")) {
        all.insert(file.path.clone(), figures_of(&page(file)));
    }
    all
}

fn long_lines(file: &TextFile) -> usize {
    let lines = file.lines().zip(file.code.lines());
    let is_long = |text: &str| text.chars().count() > COLUMNS;
    lines.filter(|((_, text), code)| is_long(text) && comment_in(text, code).is_some()).count()
}

fn crate_of(path: &str) -> Option<&str> {
    match path.strip_prefix("crates/") {
        Some(rest) => rest.split('/').next(),
        None => path.starts_with("xtask/").then_some("xtask"),
    }
}

/// Whether users may read the file's strings: tests and developers' tools have none.
fn is_product(path: &str) -> bool {
    let is_tool = ["xtask/", "crates/sim/", "crates/bench/"].iter().any(|tool| path.starts_with(tool));
    !is_tool && path.contains("/src/") && !path.ends_with("tests.rs") && !path.contains("/tests/")
}

/// The figures, and their sum over all comments.
#[must_use]
pub fn table(figures: &BTreeMap<String, Figures>) -> String {
    let mut out = String::new();
    let mut row = |name: &str, of: &Figures| {
        let _ = writeln!(
            out,
            "{name:<56} {:>6} markers {:>7} words {:>6.1} per 1,000 {:>5} long lines",
            of.markers,
            of.words,
            of.rate(),
            of.long_lines
        );
    };
    let mut sum = Figures::default();
    for (name, of) in figures {
        row(name, of);
        if name.ends_with(" comments") {
            sum.add(*of);
        }
    }
    row("all comments", &sum);
    out
}

/// Comments drawn by a seed, with their places and the code below.
#[must_use]
pub fn sample(workspace: &Workspace, count: usize, seed: u64) -> String {
    let in_crates = workspace.rust().filter(|file| file.path.starts_with("crates/"));
    let mut all: Vec<(&TextFile, Paragraph)> =
        in_crates.flat_map(|file| comments(file).into_iter().map(move |comment| (file, comment))).collect();
    let (mut state, mut out) = (seed, String::new());
    for number in 1..=count.min(all.len()) {
        let (file, comment) = all.swap_remove((draw(&mut state) % all.len() as u64) as usize);
        let _ = writeln!(out, "{number}. {}:{}\n{}", file.path, comment.line, comment.text);
        let below = file.text.lines().skip(comment.line + comment.lines - 1).take(4);
        for line in below {
            let _ = writeln!(out, "    | {line}");
        }
        out.push('\n');
    }
    out
}

/// Next random number (SplitMix64).
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn markers(text: &str) -> usize {
        figures_of(text).markers
    }

    #[test]
    fn phrases_that_hide_the_actor_are_found() {
        for bad in [
            "A replica is told of it",
            "The log goes\non",
            "It lets go of the socket",
            "after so many records",
            "replicas of which one",
            "Nobody reads",
            "those that wait",
            "What is there",
            "It is to be sent",
            "sends it anew",
            "gone for good",
            "All the same, it waits",
            "whatever comes",
            "as far as known",
        ] {
            assert_eq!(markers(bad), 1, "{bad}");
        }
    }

    #[test]
    fn plain_sentences_have_no_markers() {
        for good in [
            "The end position that the replica last reported.",
            "node 3 is down: its connection closed",
            "The leader does not repeat the permanent notice.",
            "Sends at most N records so that many readers share it",
            "Returns `what is` in code",
        ] {
            assert_eq!(markers(good), 0, "{good}");
        }
        assert_eq!(figures_of("Sends `a b c` to 3 readers.").words, 3);
    }

    #[test]
    fn comments_and_strings_are_told_from_code() {
        let text = "/// The first line\n/// goes on.\nfn f() {\n    say(\"it is told what is // there\", x); // for good\n}\n";
        let workspace =
            Workspace::of(&[("crates/a/src/lib.rs", text), ("a.md", "So many.\n```\nso many\n```\n")]);
        let file = workspace.file("crates/a/src/lib.rs").unwrap();
        let of_comments: Vec<_> =
            comments(file).into_iter().map(|comment| (comment.line, comment.lines)).collect();
        assert_eq!(of_comments, [(1, 2), (4, 1)]);
        let of_strings: Vec<_> = sentences(file).into_iter().map(|sentence| sentence.line).collect();
        assert_eq!(of_strings, [4]);
        let figures = measure(&workspace);
        assert_eq!(figures["a comments"], Figures { markers: 2, words: 7, long_lines: 0 });
        assert_eq!(figures["a strings"].markers, 2);
        assert_eq!(figures["a.md"], Figures { markers: 1, words: 2, long_lines: 0 });
    }

    #[test]
    fn a_sample_follows_from_its_seed() {
        let text: String =
            (0..50).map(|number| format!("// Comment {number}.\nfn f{number}() {{}}\n\n")).collect();
        let workspace = Workspace::of(&[("crates/a/src/lib.rs", &text)]);
        assert_eq!(sample(&workspace, 5, 1), sample(&workspace, 5, 1));
        assert_ne!(sample(&workspace, 5, 1), sample(&workspace, 5, 2));
        assert_eq!(sample(&workspace, 60, 1).matches("lib.rs:").count(), 50);
    }
}
