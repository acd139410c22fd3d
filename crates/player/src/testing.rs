//! Servers for tests: a real PostgreSQL on loopback that can be killed and restarted, and receivers
//! of HTTP requests.

mod receiver;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tempfile::TempDir;

pub use receiver::{Receiver, Request, Stored};

/// Environment variable. If it is 1, a missing PostgreSQL fails the test instead of skipping it.
const REQUIRED: &str = "SERIATIM_REQUIRE_POSTGRES";
/// Directory in which Debian installs the server's programs, one directory for each version.
const DEBIAN: &str = "/usr/lib/postgresql";
const START_FOR: Duration = Duration::from_secs(30);
/// The server's log line once it takes connections.
const READY: &str = "database system is ready to accept connections";
/// Attempts to start: another process may take the port, and processes of a killed server may still
/// use its memory.
const ATTEMPTS: u32 = 20;
/// Users without rights, one of whom runs the server if the test runs as root.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// A running PostgreSQL with its data in a temporary directory. Dropping it kills it.
#[derive(Debug)]
pub struct PostgresServer {
    child: Child,
    port: u16,
    programs: PathBuf,
    user: Option<User>,
    directory: TempDir,
}

/// A user of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct User {
    uid: u32,
    gid: u32,
}

impl PostgresServer {
    /// Starts an empty server. `None`, with a printed line, if PostgreSQL is not installed.
    ///
    /// # Panics
    /// If it does not start, or is missing although `SERIATIM_REQUIRE_POSTGRES` is 1.
    #[must_use]
    #[expect(clippy::print_stdout, reason = "the skipped test is reported")]
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            let is_required = std::env::var(REQUIRED).is_ok_and(|value| value == "1");
            assert!(!is_required, "PostgreSQL is not installed, and {REQUIRED} is 1: install postgresql");
            println!("skipped, because there is no PostgreSQL: install Debian's package postgresql");
            return None;
        };
        let directory = tempfile::tempdir().expect("a temporary directory");
        // The owner of a new directory is the user of this process.
        let is_root = directory.path().metadata().expect("it was created").uid() == 0;
        let user = is_root.then(unprivileged);
        if let Some(user) = user {
            chown(directory.path(), Some(user.uid), Some(user.gid)).expect("root may give it away");
        }
        let data = directory.path().join("data");
        let mut create = command(&programs.join("initdb"), user);
        create.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        let created = create.arg("--pgdata").arg(&data).output().expect("initdb was found");
        assert!(created.status.success(), "initdb: {}", String::from_utf8_lossy(&created.stderr));
        for _ in 0..ATTEMPTS {
            let port = free_port();
            if let Some(child) = spawn(&programs, user, &data, port) {
                return Some(Self { child, port, programs, user, directory });
            }
        }
        panic!("PostgreSQL does not start")
    }

    /// Address of the database `name` for the user `postgres`, who needs no password.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{name}", self.port)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Directory of its data, with its configuration files.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Runs SQL in the database `name`, and returns the rows as lines with `|` between columns.
    ///
    /// # Panics
    /// If the SQL fails.
    #[must_use]
    pub fn query(&self, name: &str, sql: &str) -> Vec<String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["--no-psqlrc", "--no-align", "--tuples-only", "--quiet", "--set=ON_ERROR_STOP=1"]);
        let done = psql.args(["--dbname", &self.url(name), "--command", sql]).output().expect("psql runs");
        assert!(done.status.success(), "{sql}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).lines().map(str::to_owned).collect()
    }

    /// Runs SQL that returns no rows in the database `name`.
    ///
    /// # Panics
    /// If the SQL fails, or returns rows.
    pub fn execute(&self, name: &str, sql: &str) {
        let rows = self.query(name, sql);
        assert!(rows.is_empty(), "{sql}: {rows:?}");
    }

    /// Restarts it with a certificate for 127.0.0.1. Returns the file of its authority.
    ///
    /// # Panics
    /// If it does not start, or the program `openssl` fails.
    #[must_use]
    pub fn encrypt(&mut self) -> PathBuf {
        let data = self.data();
        certify(&data);
        if let Some(user) = self.user {
            for name in ["server.crt", "server.key"] {
                chown(data.join(name), Some(user.uid), Some(user.gid)).expect("root may give it away");
            }
        }
        let settings = data.join("postgresql.conf");
        let usual = std::fs::read_to_string(&settings).expect("initdb wrote it");
        std::fs::write(&settings, format!("{usual}\nssl = on\n")).expect("it may be written");
        self.restart();
        data.join("authority.crt")
    }

    /// Kills it, as with `kill -9`.
    pub fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Restarts it with its data and its port.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        let start = |_| spawn(&self.programs, self.user, &self.data(), self.port);
        self.child = (0..ATTEMPTS).find_map(start).expect("PostgreSQL starts again");
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Creates a certificate for 127.0.0.1 in `server.crt` and `server.key` of a directory, and its
/// authority in `authority.crt`.
fn certify(directory: &Path) {
    let create = |name: &str, more: &[&str]| {
        let mut openssl = Command::new("openssl");
        openssl.current_dir(directory).args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
        openssl.args(["-subj", &format!("/CN=test {name}"), "-out", &format!("{name}.crt")]);
        let done = openssl.args(["-keyout", &format!("{name}.key")]).args(more).output();
        let done = done.expect("openssl runs");
        assert!(done.status.success(), "openssl: {}", String::from_utf8_lossy(&done.stderr));
    };
    create("authority", &[]);
    let issue = ["-CA", "authority.crt", "-CAkey", "authority.key"];
    let extend = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
    create("server", &[&issue[..], &extend[..]].concat());
}

/// Directory of the server's programs: Debian's latest version, or a directory of `PATH`.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let latest = versions.map(|entry| entry.path()).max_by_key(version).map(|path| path.join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    latest.into_iter().chain(std::env::split_paths(&path)).find(|path| path.join("initdb").exists())
}

/// A user who is not root, since PostgreSQL refuses to run as root.
fn unprivileged() -> User {
    let users = std::fs::read_to_string("/etc/passwd").expect("a list of users");
    let numbers = |name: &&str| {
        let line = users.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let mut fields = line.split(':').skip(1).map(|field| field.parse().ok());
        Some(User { uid: fields.next()??, gid: fields.next()?? })
    };
    USERS.iter().find_map(numbers).expect("the user `postgres` or `nobody`")
}

fn command(program: &Path, user: Option<User>) -> Command {
    let mut command = Command::new(program);
    // The test's own directory may be closed for the user.
    command.current_dir("/").stdin(Stdio::null());
    if let Some(User { uid, gid }) = user {
        command.uid(uid).gid(gid);
    }
    command
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// Returns a server that takes connections; `None` if it ends before.
fn spawn(programs: &Path, user: Option<User>, data: &Path, port: u16) -> Option<Child> {
    let mut child = command(&programs.join("postgres"), user)
        .arg("-D")
        .arg(data)
        .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("postgres was found");
    let said = BufReader::new(child.stderr.take().expect("it was piped"));
    let (ready, is_ready) = mpsc::sync_channel(1);
    // Reads all output, so that the server never blocks on its log.
    std::thread::spawn(move || {
        for line in said.lines().map_while(Result::ok).filter(|line| line.contains(READY)) {
            // Only the first line counts.
            let _ = ready.try_send(line);
        }
    });
    // A server that ends closes its output, which drops the sender.
    if is_ready.recv_timeout(START_FOR).is_ok() {
        return Some(child);
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}
