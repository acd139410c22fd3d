//! Passwords for PostgreSQL, which no configuration file contains.

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::secret::read_secret;
use crate::config::Secret;

/// PostgreSQL's port by default.
const DEFAULT_PORT: u16 = 5432;

/// Returns the password for a connection. `None` if none is configured.
pub(super) fn find_password(password: Option<&Secret>, config: &Config) -> Result<Option<String>, String> {
    match password {
        Some(secret) => read_secret("password", secret).map(Some),
        None => {
            let Some(path) = std::env::var_os("PGPASSFILE") else { return Ok(None) };
            let text = std::fs::read_to_string(&path)
                .map_err(|error| format!("cannot read PGPASSFILE {}: {error}", path.display()))?;
            Ok(in_pass_file(&text, config))
        }
    }
}

/// The password of the first matching line HOST:PORT:DATABASE:USER:PASSWORD.
fn in_pass_file(text: &str, config: &Config) -> Option<String> {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        #[cfg(unix)]
        Some(Host::Unix(_)) => "localhost".into(),
        None => config.get_hostaddrs().first().map_or("localhost".into(), ToString::to_string),
    };
    let port = config.get_ports().first().unwrap_or(&DEFAULT_PORT).to_string();
    let user = config.get_user().unwrap_or_default();
    let wanted = [&host, &port, config.get_dbname().unwrap_or(user), user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let (password, names) = fields.split_last()?;
        let matches = |(name, wanted): (&String, &&str)| name == "*" || name == wanted;
        let is_meant = names.len() == wanted.len() && names.iter().zip(&wanted).all(matches);
        is_meant.then(|| password.clone())
    })
}

/// The fields of a line. A backslash precedes a colon or a backslash of a field.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let last = fields.last_mut().expect("there is a first field");
        match letter {
            ':' => fields.push(String::new()),
            '\\' => last.extend(letters.next()),
            other => last.push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Config {
        url.parse().unwrap()
    }

    #[test]
    fn the_first_matching_line_of_a_pass_file_counts() {
        let text = "# h:5432:ledger:seriatim:comment\nother:*:*:*:no\nh:5433:ledger:seriatim:port\n\
            h:*:ledger:seriatim:a\\:b\\\\c\n*:*:*:*:any";
        let find = |url| in_pass_file(text, &config(url));
        assert_eq!(find("postgres://seriatim@h/ledger").as_deref(), Some("a:b\\c"));
        assert_eq!(find("postgres://seriatim@h:5433/ledger").as_deref(), Some("port"));
        assert_eq!(find("host=x user=y").as_deref(), Some("any"));
        assert_eq!(in_pass_file("h:*:x:seriatim:a", &config("postgres://seriatim@h/ledger")), None);
    }
}
