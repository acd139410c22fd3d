//! Passwords and tokens, which no configuration file contains.

use std::env::VarError;

use crate::config::Secret;

/// Reads the secret of the keys `NAME_file` and `NAME_env`.
pub(super) fn read_secret(name: &str, secret: &Secret) -> Result<String, String> {
    match secret {
        Secret::File(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("cannot read `{name}_file` {}: {error}", path.display()))?;
            let line = text.strip_suffix('\n').unwrap_or(&text);
            Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
        }
        Secret::Variable(variable) => std::env::var(variable).map_err(|error| {
            // The error of the standard library contains the value.
            let why = match error {
                VarError::NotPresent => "is not set",
                VarError::NotUnicode(_) => "is not UTF-8",
            };
            format!("`{name}_env` names the environment variable {variable}, which {why}")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_without_its_line_feed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        let read = |path| read_secret("password", &Secret::File(path));
        assert!(read(path.clone()).unwrap_err().starts_with("cannot read `password_file`"));
        std::fs::write(&path, " secret \n").unwrap();
        assert_eq!(read(path), Ok(" secret ".into()));
    }

    #[test]
    fn a_missing_variable_is_named() {
        let error = read_secret("token", &Secret::Variable("NO_SUCH_VARIABLE".into())).unwrap_err();
        let expected = "`token_env` names the environment variable NO_SUCH_VARIABLE, which is not set";
        assert_eq!(error, expected);
    }
}
