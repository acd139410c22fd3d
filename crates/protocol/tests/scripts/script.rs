//! A script's paragraphs, with expected and actual effects.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::world::World;

pub(crate) struct Script {
    paragraphs: Vec<Paragraph>,
}

struct Paragraph {
    /// Number of the paragraph's first line in the file, from 1.
    line: usize,
    lines: Vec<String>,
    expected: Option<Vec<String>>,
    happened: Vec<String>,
}

type Complaint = (usize, String);

const NOTHING: &str = "nothing";
const RULE: &str = "----";

impl Script {
    pub(crate) fn parse(text: &str) -> Self {
        let mut paragraphs: Vec<Paragraph> = vec![];
        let mut open = false;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim_end();
            if line.is_empty() {
                open = false;
                continue;
            }
            if !std::mem::replace(&mut open, true) {
                paragraphs.push(Paragraph {
                    line: index + 1,
                    lines: vec![],
                    expected: None,
                    happened: vec![],
                });
            }
            let paragraph = paragraphs.last_mut().expect("one is open");
            match &mut paragraph.expected {
                Some(expected) => expected.push(line.to_owned()),
                None if line == RULE => paragraph.expected = Some(vec![]),
                None => paragraph.lines.push(line.to_owned()),
            }
        }
        Self { paragraphs }
    }

    pub(crate) fn prose(&self) -> String {
        let first = self.paragraphs.first().map_or(&[][..], |paragraph| &paragraph.lines);
        let comments: Vec<&str> = first.iter().map_while(|line| line.strip_prefix('#')).collect();
        comments.join("\n")
    }

    /// Executes all commands and keeps their effects. Stops at an invalid command.
    pub(crate) fn run(&mut self) -> Result<(), Complaint> {
        let mut world = World::default();
        for paragraph in &mut self.paragraphs {
            for (index, line) in paragraph.lines.iter().enumerate() {
                let Some(command) = line.split(" # ").next().filter(|line| !line.starts_with('#')) else {
                    continue;
                };
                let taken = guarded(|| world.command(command));
                taken.map_err(|why| (paragraph.line + index, format!("  {command}\n  {why}")))?;
            }
            guarded(|| world.drain()).map_err(|why| (paragraph.line, why))?;
            paragraph.happened = world.take_effects();
        }
        Ok(())
    }

    /// Paragraphs with unexpected effects.
    pub(crate) fn differences(&self) -> Vec<Complaint> {
        let differs = |paragraph: &&Paragraph| paragraph.wanted() != paragraph.happened;
        self.paragraphs.iter().filter(differs).map(|paragraph| (paragraph.line, paragraph.report())).collect()
    }
}

/// Turns a machine's failed assertion into a complaint.
fn guarded(action: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        Err(format!("the machine stopped: {}", text.unwrap_or_default()))
    })
}

impl Paragraph {
    fn wanted(&self) -> Vec<String> {
        let expected = self.expected.iter().flatten();
        expected.filter(|line| *line != NOTHING).cloned().collect()
    }

    /// The commands, then missing (`-`) and unexpected (`+`) effects.
    fn report(&self) -> String {
        let (wanted, happened) = (self.wanted(), &self.happened);
        let same_start = wanted.iter().zip(happened).take_while(|(a, b)| a == b).count();
        let rest = (&wanted[same_start..], &happened[same_start..]);
        let same_end = rest.0.iter().rev().zip(rest.1.iter().rev()).take_while(|(a, b)| a == b).count();
        let mut report: Vec<String> = self.lines.iter().map(|line| format!("    {line}")).collect();
        report.push(format!("    {RULE}"));
        let mut show = |mark: char, lines: &[String]| {
            report.extend(lines.iter().map(|line| format!("  {mark} {line}")));
        };
        show(' ', &wanted[..same_start]);
        show('-', &wanted[same_start..wanted.len() - same_end]);
        show('+', &happened[same_start..happened.len() - same_end]);
        show(' ', &wanted[wanted.len() - same_end..]);
        report.join("\n")
    }
}

/// The script with its actual effects.
impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, paragraph) in self.paragraphs.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            paragraph.lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
            if paragraph.expected.is_some() || !paragraph.happened.is_empty() {
                writeln!(f, "{RULE}")?;
                paragraph.happened.iter().try_for_each(|line| writeln!(f, "{line}"))?;
                if paragraph.happened.is_empty() {
                    writeln!(f, "{NOTHING}")?;
                }
            }
        }
        Ok(())
    }
}
