//! `seriatim bench plot`: charts and tables of recorded figures.

use std::path::Path;

use super::presentation::Presentation;
use super::report::{Report, write_file};
use super::style::document;
use crate::arguments::PlotArguments;
use crate::terminal::{Failure, Outcome, print_line};

pub(super) fn run(arguments: &PlotArguments) -> Outcome {
    let mut page = match &arguments.page {
        None => None,
        Some(path) => Some((path, read(path)?)),
    };
    for file in &arguments.files {
        let report = Report::read(file)?;
        let presentation = Presentation::of(&report.command).ok_or_else(|| {
            let (file, command) = (file.display(), &report.command);
            Failure::new(format!("{file}: nothing is known of what '{command}' measures"))
        })?;
        let charts = document(&(presentation.charts)(&report.rows));
        let drawn = file.with_extension("svg");
        write_file(&drawn, &charts)?;
        print_line(drawn.display());
        if let Some((path, text)) = &mut page {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let table = presentation.medians(&report.rows).markdown();
            let image = beside(path, &drawn);
            let figures = format!(
                "```sh\n{}\n```\n\n{table}\n![{name}]({image})\n\nCommit {}, {}.\n",
                report.command, report.commit, report.machine
            );
            *text = replaced(text, &name, &figures).ok_or_else(|| {
                let marks = format!("'{}' and '{}'", begin(&name).trim_end(), end(&name).trim_end());
                Failure::new(format!("{}: there are no lines {marks}", path.display()))
            })?;
        }
    }
    match page {
        None => Ok(()),
        Some((path, text)) => write_file(path, &text),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|cause| Failure::new(format!("{}: {cause}", path.display())))
}

/// The file's path relative to the page.
fn beside(page: &Path, file: &Path) -> String {
    let directory = page.parent().unwrap_or(Path::new(""));
    file.strip_prefix(directory).unwrap_or(file).to_string_lossy().into_owned()
}

fn begin(name: &str) -> String {
    format!("<!-- figures: {name} -->\n")
}

fn end(name: &str) -> String {
    format!("<!-- end: {name} -->\n")
}

/// Replaces the page's text between the marks of `name`; `None` if the page lacks them.
fn replaced(page: &str, name: &str, figures: &str) -> Option<String> {
    let (begin, end) = (begin(name), end(name));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some([before, &begin, figures, &end, after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_the_marks_is_replaced() {
        let page = "a\n<!-- figures: x -->\nold\n<!-- end: x -->\nb\n";
        let wanted = "a\n<!-- figures: x -->\nnew\n<!-- end: x -->\nb\n";
        assert_eq!(replaced(page, "x", "new\n").as_deref(), Some(wanted));
        assert_eq!(replaced(wanted, "x", "new\n").as_deref(), Some(wanted));
        assert_eq!(replaced(page, "y", "new\n"), None);
    }

    #[test]
    fn an_image_is_named_as_the_page_sees_it() {
        let beside = |page: &str, file: &str| beside(Path::new(page), Path::new(file));
        assert_eq!(beside("bench/README.md", "bench/results/a.svg"), "results/a.svg");
        assert_eq!(beside("README.md", "results/a.svg"), "results/a.svg");
    }
}
