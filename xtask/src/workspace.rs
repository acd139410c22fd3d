//! The workspace as text, loaded once.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::source;

/// A text file.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// Path below the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
    /// Rust: the text with comments, strings and characters blanked, line for line. Otherwise
    /// empty.
    pub code: String,
}

impl TextFile {
    pub(crate) fn new(path: String, text: String) -> Self {
        let code = if path.ends_with(".rs") { source::blank(&text) } else { String::new() };
        Self { path, text, code }
    }

    /// Numbered lines, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// All text files of a workspace, by path.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    files: Vec<TextFile>,
}

impl Workspace {
    /// Root of this program's workspace.
    #[must_use]
    pub fn own_root() -> PathBuf {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        manifest.parent().expect("xtask is a folder of the workspace").to_path_buf()
    }

    /// Loads this program's workspace.
    ///
    /// # Errors
    /// If a folder or a file cannot be read.
    pub fn load_own() -> io::Result<Self> {
        Self::load(&Self::own_root())
    }

    /// Loads every text file below `root`, except ignored files and git's own.
    ///
    /// # Errors
    /// If a folder or a file cannot be read.
    pub fn load(root: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        load_folder(root, "", &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    /// A workspace of these paths and texts.
    #[must_use]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| TextFile::new((*path).into(), (*text).into());
        Self { files: files.iter().map(file).collect() }
    }

    /// All files.
    #[must_use]
    pub fn files(&self) -> &[TextFile] {
        &self.files
    }

    /// Rust files.
    pub fn rust(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// Files below a folder, which ends with `/`.
    pub fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a TextFile> {
        self.files.iter().filter(move |file| file.path.starts_with(folder))
    }

    /// The file at `path`.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&TextFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

fn load_folder(folder: &Path, prefix: &str, files: &mut Vec<TextFile>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if is_skipped(name, prefix) {
            continue;
        }
        if kind.is_dir() {
            load_folder(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file()
            && let Some(text) = read_text(&entry.path())?
        {
            files.push(TextFile::new(path, text));
        }
    }
    Ok(())
}

/// `None`: it is no text, or was deleted meanwhile.
fn read_text(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8(bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Names in `.gitignore`, and git's own: a folder, or a file in a further worktree.
fn is_skipped(name: &str, prefix: &str) -> bool {
    name == ".git" || prefix.is_empty() && (name.starts_with("target") || name == "seriatim-data")
}
