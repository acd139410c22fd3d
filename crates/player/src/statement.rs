//! SQL statements of targets: their parameters, and the checks that need no database.

/// The value that a parameter stands for. A statement runs once for each part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// The entry's position.
    Position,
    /// The part, as bytes.
    Payload,
    /// The part, as text. A part that is not UTF-8 is rejected.
    Text,
    /// The entry's key, as bytes; null without a key.
    Key,
    /// Time of the append by the appending client's clock, in milliseconds since 1970.
    TimeMs,
    /// Number of the part in its message, from 0.
    Index,
}

/// The names that statements use.
const NAMES: [(&str, Parameter); 6] = [
    ("position", Parameter::Position),
    ("payload", Parameter::Payload),
    ("text", Parameter::Text),
    ("key", Parameter::Key),
    ("time_ms", Parameter::TimeMs),
    ("index", Parameter::Index),
];

/// First words of statements that would begin or end the transaction of a batch.
const TRANSACTIONAL: [&str; 9] =
    ["abort", "begin", "commit", "end", "prepare", "release", "rollback", "savepoint", "start"];

/// Longest excerpt of a statement in an error, in characters.
const EXCERPT: usize = 60;

/// The rules of a database for literals, comments and parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

/// A statement with numbered parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The text for the database: `$position` became `$1` (PostgreSQL) or `?1` (SQLite).
    sql: String,
    /// The parameter of each number, from 1. Each occurs once.
    parameters: Vec<Parameter>,
}

impl Statement {
    /// Parses a statement with the parameters `$position`, `$payload`, `$text`, `$key`, `$time_ms`
    /// and `$index`.
    ///
    /// # Errors
    /// One sentence, for an unknown parameter, a second statement, an empty statement, an
    /// unterminated literal, or a statement that begins or ends a transaction.
    pub fn parse(text: &str, dialect: Dialect) -> Result<Self, String> {
        let mut scanner = Scanner { rest: text, dialect, first_word: None, ended: false };
        let mut statement = Self { sql: String::with_capacity(text.len()), parameters: Vec::new() };
        let failed = |what: String| format!("the statement '{}' {what}", excerpt(text));
        while !scanner.rest.is_empty() {
            match scanner.next().map_err(failed)? {
                Token::Text(text) => statement.sql.push_str(text),
                Token::Parameter(name) => statement.parameter(name, dialect).map_err(failed)?,
            }
        }
        let Some(word) = scanner.first_word else { return Err("a statement is empty; write SQL".into()) };
        if TRANSACTIONAL.contains(&word.as_str()) {
            let what = "begins or ends a transaction; remove it, because the player commits each batch together with its bound";
            return Err(failed(what.into()));
        }
        Ok(statement)
    }

    /// The text for the database.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The parameter of each number, from 1.
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn parameter(&mut self, name: &str, dialect: Dialect) -> Result<(), String> {
        let found = name.strip_prefix('$').and_then(|name| NAMES.iter().find(|(known, _)| *known == name));
        let Some((_, parameter)) = found else {
            let known: Vec<String> = NAMES.iter().map(|(name, _)| format!("${name}")).collect();
            return Err(format!("has the unknown parameter {name}; the parameters are {}", known.join(", ")));
        };
        let known = self.parameters.iter().position(|other| other == parameter);
        let index = known.unwrap_or_else(|| {
            self.parameters.push(*parameter);
            self.parameters.len() - 1
        });
        let sign = match dialect {
            Dialect::Sqlite => '?',
            Dialect::Postgres => '$',
        };
        self.sql.push_str(&format!("{sign}{}", index + 1));
        Ok(())
    }
}

fn excerpt(text: &str) -> String {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match flat.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", &flat[..end]),
        None => flat,
    }
}

enum Token<'a> {
    Text(&'a str),
    /// A parameter with its sign.
    Parameter(&'a str),
}

/// Divides a statement into literals, comments, words and parameters.
struct Scanner<'a> {
    rest: &'a str,
    dialect: Dialect,
    /// The first word of the statement, in small letters.
    first_word: Option<String>,
    /// A semicolon was found.
    ended: bool,
}

impl<'a> Scanner<'a> {
    /// Returns the next token. The rest must not be empty.
    fn next(&mut self) -> Result<Token<'a>, String> {
        let rest = self.rest;
        let next = rest.chars().next().expect("the rest is not empty");
        if next.is_whitespace() {
            return Ok(Token::Text(self.take(next.len_utf8())));
        }
        if let Some(length) = self.comment()? {
            return Ok(Token::Text(self.take(length)));
        }
        if next == ';' {
            self.ended = true;
            return Ok(Token::Text(self.take(1)));
        }
        if self.ended {
            return Err("holds two statements; write a list with one statement in each string".into());
        }
        if let Some(length) = self.literal(next)? {
            self.first_word.get_or_insert_default();
            return Ok(Token::Text(self.take(length)));
        }
        if self.is_parameter(next) {
            self.first_word.get_or_insert_default();
            let length = next.len_utf8() + word_length(&rest[next.len_utf8()..]);
            return Ok(Token::Parameter(self.take(length)));
        }
        let length = word_length(rest).max(next.len_utf8());
        self.first_word.get_or_insert_with(|| rest[..length].to_lowercase());
        Ok(Token::Text(self.take(length)))
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        token
    }

    fn is_parameter(&self, next: char) -> bool {
        next == '$' || self.dialect == Dialect::Sqlite && matches!(next, '?' | ':' | '@' | '#')
    }

    /// Length of the comment at the start of the rest, in bytes. `None` if there is none.
    fn comment(&self) -> Result<Option<usize>, String> {
        if self.rest.starts_with("--") {
            return Ok(Some(self.rest.find('\n').unwrap_or(self.rest.len())));
        }
        if !self.rest.starts_with("/*") {
            return Ok(None);
        }
        let (mut depth, mut at) = (1, 2);
        while depth > 0 {
            let rest = self.rest.get(at..).filter(|rest| !rest.is_empty());
            let rest = rest.ok_or("has a comment without an end")?;
            let (change, length) = match () {
                () if rest.starts_with("*/") => (-1, 2),
                () if rest.starts_with("/*") && self.dialect == Dialect::Postgres => (1, 2),
                () => (0, rest.chars().next().map_or(1, char::len_utf8)),
            };
            depth += change;
            at += length;
        }
        Ok(Some(at))
    }

    /// Length of the quoted text at the start of the rest, in bytes. `None` if there is none.
    fn literal(&self, next: char) -> Result<Option<usize>, String> {
        let postgres = self.dialect == Dialect::Postgres;
        let end = match next {
            '\'' => quoted(self.rest, 1, '\'', false),
            'e' | 'E' if postgres && self.rest[1..].starts_with('\'') => quoted(self.rest, 2, '\'', true),
            '"' => quoted(self.rest, 1, '"', false),
            '`' if !postgres => quoted(self.rest, 1, '`', false),
            '[' if !postgres => self.rest.find(']').map(|end| end + 1),
            '$' if postgres => match dollar_tag(self.rest) {
                Some(tag) => self.rest[tag.len()..].find(tag).map(|end| end + 2 * tag.len()),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Some(end.ok_or("has a quoted text without an end")?))
    }
}

/// Number of bytes up to the end of a quoted text whose contents begin at `from`. `None` if the
/// text does not end. A doubled quote is part of the text.
fn quoted(text: &str, from: usize, quote: char, escapes: bool) -> Option<usize> {
    let mut letters = text[from..].char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' && escapes {
            letters.next();
        } else if letter == quote && letters.next_if(|(_, next)| *next == quote).is_none() {
            return Some(from + at + 1);
        }
    }
    None
}

/// The opening `$tag$` of a dollar-quoted text of PostgreSQL.
fn dollar_tag(text: &str) -> Option<&str> {
    let name = &text[1..];
    let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
    let is_tag = name[end..].starts_with('$') && !name.starts_with(|c: char| c.is_ascii_digit());
    is_tag.then(|| &text[..end + 2])
}

/// Length of the word, name or number at the start of `text`, in bytes. A `$` may be inside.
fn word_length(text: &str) -> usize {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    let mut length = 0;
    for letter in text.chars() {
        if !(inside(letter) || letter == '$' && length > 0) {
            break;
        }
        length += letter.len_utf8();
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_in_the_order_of_their_first_use() {
        let text = "insert into t values ($payload, $position, $payload)";
        let sqlite = Statement::parse(text, Dialect::Sqlite).unwrap();
        assert_eq!(sqlite.sql(), "insert into t values (?1, ?2, ?1)");
        let postgres = Statement::parse(text, Dialect::Postgres).unwrap();
        assert_eq!(postgres.sql(), "insert into t values ($1, $2, $1)");
        assert_eq!(postgres.parameters(), [Parameter::Payload, Parameter::Position]);
    }

    #[test]
    fn literals_names_and_comments_hold_no_parameters() {
        for text in [
            "select '$x; ''$y', \"$z\" -- $a ;\n /* $b; */",
            "insert into t values (1); -- done",
            "select a$b from t ;",
        ] {
            for dialect in [Dialect::Sqlite, Dialect::Postgres] {
                let statement = Statement::parse(text, dialect).unwrap();
                assert_eq!((statement.sql(), statement.parameters().len()), (text, 0));
            }
        }
        for text in ["select $$a; $x$$, $q$ $$ ; $q$", "select e'\\'; $x'", "select /* /* ; */ ; */ a ? b"] {
            assert_eq!(Statement::parse(text, Dialect::Postgres).unwrap().sql(), text);
        }
        let text = "select [$x], `$y;` from t";
        assert_eq!(Statement::parse(text, Dialect::Sqlite).unwrap().sql(), text);
    }

    #[test]
    fn a_cast_of_postgres_follows_its_parameter() {
        let statement = Statement::parse("insert into t values ($text::jsonb)", Dialect::Postgres).unwrap();
        assert_eq!(statement.sql(), "insert into t values ($1::jsonb)");
    }

    #[test]
    fn mistakes_are_reported_in_one_sentence() {
        let cases = [
            ("insert into t values ($pos)", "has the unknown parameter $pos; the parameters are $position, "),
            ("insert into t values ($1)", "has the unknown parameter $1;"),
            ("delete from a; delete from b", "holds two statements; write a list"),
            (" /* x */ Commit", "begins or ends a transaction; remove it"),
            ("END;", "begins or ends a transaction"),
            ("rollback to x", "begins or ends a transaction"),
            ("select 'a", "has a quoted text without an end"),
            ("select 1 /* a", "has a comment without an end"),
            (" ; ", "a statement is empty; write SQL"),
        ];
        for (text, expected) in cases {
            for dialect in [Dialect::Sqlite, Dialect::Postgres] {
                let error = Statement::parse(text, dialect).unwrap_err();
                assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
            }
        }
        for text in ["insert into t values (?)", "insert into t values (:position)", "select @x"] {
            let error = Statement::parse(text, Dialect::Sqlite).unwrap_err();
            assert!(error.contains("unknown parameter"), "{text}: {error}");
        }
    }
}
