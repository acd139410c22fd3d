//! A small HTTP server for tests, and the memory of a receiver that stores its bound.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The headers, with names in small letters.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// A header as a number.
    ///
    /// # Panics
    /// If it is missing, or no number.
    #[must_use]
    pub fn number(&self, name: &str) -> u64 {
        self.headers[name].parse().expect("a number")
    }
}

/// A server that calls a function for each request. Its threads end with the process.
#[derive(Debug)]
pub struct Receiver {
    address: String,
}

impl Receiver {
    /// Starts a server on loopback. `answer` returns status and body.
    ///
    /// # Panics
    /// If no port is free.
    #[must_use]
    pub fn start(answer: impl Fn(&Request) -> (u16, String) + Send + Sync + 'static) -> Self {
        Self::listen(|connection| connection, answer)
    }

    /// Starts a server with TLS, and a certificate by the authority in `authority.crt` of
    /// `directory`.
    ///
    /// # Panics
    /// If the program `openssl` fails, or no port is free.
    #[must_use]
    pub fn start_encrypted(
        directory: &Path,
        answer: impl Fn(&Request) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        super::certify(directory);
        let certificate = CertificateDer::from_pem_file(directory.join("server.crt")).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(directory.join("server.key")).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has this version")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("the key belongs to the certificate");
        let config = Arc::new(config);
        let encrypt = move |connection| {
            let session = rustls::ServerConnection::new(config.clone()).expect("a valid configuration");
            rustls::StreamOwned::new(session, connection)
        };
        Self::listen(encrypt, answer)
    }

    fn listen<C: Read + Write>(
        wrap: impl Fn(TcpStream) -> C + Send + Sync + 'static,
        answer: impl Fn(&Request) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let shared = Arc::new((wrap, answer));
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    let (wrap, answer) = &*shared;
                    serve(wrap(connection), answer);
                });
            }
        });
        Self { address }
    }

    /// Its address, HOST:PORT.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// Serves a connection until the client closes it.
fn serve(connection: impl Read + Write, answer: &impl Fn(&Request) -> (u16, String)) {
    let mut connection = BufReader::new(connection);
    while let Some(request) = read(&mut connection) {
        let (status, body) = answer(&request);
        let length = body.len();
        let text = format!("HTTP/1.1 {status} Test\r\ncontent-length: {length}\r\n\r\n{body}");
        let connection = connection.get_mut();
        if connection.write_all(text.as_bytes()).and_then(|()| connection.flush()).is_err() {
            return;
        }
    }
}

/// The next request. `None`: the client has closed the connection.
fn read(connection: &mut impl BufRead) -> Option<Request> {
    let line = |connection: &mut dyn BufRead| {
        let mut line = String::new();
        connection.read_line(&mut line).ok().filter(|length| *length > 0)?;
        Some(line.trim_end().to_owned())
    };
    let method = line(connection)?.split(' ').next()?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let line = line(connection)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().expect("a number"));
    let mut body = vec![0; length];
    connection.read_exact(&mut body).ok()?;
    Some(Request { method, headers, body })
}

/// The row of one stream and target.
#[derive(Clone, Debug, Default)]
struct Row {
    stream: String,
    epoch: u64,
    bound: u64,
}

/// The data of a receiver that stores bound and effects together, as `docs/player.md` demands.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Clone, Debug, Default)]
struct Inner {
    /// By player and target.
    rows: BTreeMap<(String, String), Row>,
    effects: Vec<(u64, Vec<u8>)>,
    /// Requests with such a part are rejected.
    refused: Option<Vec<u8>>,
}

impl Stored {
    /// The answer to a request, and its effects.
    ///
    /// # Panics
    /// If the request lacks a part that the contract demands.
    #[must_use]
    pub fn answer(&self, request: &Request) -> (u16, String) {
        let header = |name: &str| request.headers.get(name).cloned();
        let stream = header("seriatim-stream").expect("a stream");
        let player = stream.split_once('/').expect("LOG/PLAYER").1.to_owned();
        let target = header("seriatim-target").expect("a target");
        let mut inner = self.lock();
        let row = inner.rows.get(&(player.clone(), target.clone())).cloned().unwrap_or_default();
        let is_other = !row.stream.is_empty() && row.stream != stream;
        if request.method == "GET" {
            let adopts = header("seriatim-adopts").map(|_| request.number("seriatim-adopts"));
            if is_other && adopts.is_none() {
                return (200, json!({ "applied": row.bound, "stream": row.stream }).to_string());
            }
            let is_new = is_other || row.stream.is_empty();
            let bound = adopts.filter(|_| is_new).unwrap_or(row.bound);
            if header("seriatim-epoch").is_some() {
                let epoch = request.number("seriatim-epoch");
                if !is_other && row.epoch > epoch {
                    return (412, json!({ "epoch": row.epoch }).to_string());
                }
                inner.rows.insert((player, target), Row { stream, epoch, bound });
            }
            return (200, json!({ "applied": bound }).to_string());
        }
        let epoch = request.number("seriatim-epoch");
        if !is_other && row.epoch > epoch {
            return (412, json!({ "epoch": row.epoch }).to_string());
        }
        if is_other || row.epoch < epoch || row.bound != request.number("seriatim-after") {
            return (409, json!({ "applied": row.bound, "stream": row.stream }).to_string());
        }
        let parts = parts(&request.body);
        if let Some(refused) = &inner.refused
            && parts.iter().any(|(_, part)| part == refused)
        {
            return (422, format!("'{}' is refused", String::from_utf8_lossy(refused)));
        }
        inner.effects.extend(parts);
        let bound = request.number("seriatim-upto");
        inner.rows.insert((player, target), Row { stream, epoch, bound });
        (204, String::new())
    }

    /// The positions and the parts that it has applied, in order.
    #[must_use]
    pub fn effects(&self) -> Vec<(u64, Vec<u8>)> {
        self.lock().effects.clone()
    }

    /// Rejects requests with this part from now on; with `None`, no request.
    pub fn refuse(&self, part: Option<&str>) {
        self.lock().refused = part.map(|part| part.as_bytes().to_vec());
    }

    /// A copy of the data.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { inner: Arc::new(Mutex::new(self.lock().clone())) }
    }

    /// Replaces the data by those of a copy.
    pub fn restore(&self, copy: &Self) {
        let data = copy.lock().clone();
        *self.lock() = data;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parts in JSON lines, with the positions of their messages.
fn parts(lines: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let part = |part: &Value| match part {
        Value::String(text) => text.as_bytes().to_vec(),
        other => BASE64.decode(other["base64"].as_str().expect("text or base64")).expect("valid base64"),
    };
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let message = |line: &[u8]| {
        let message: Value = serde_json::from_slice(line).expect("a line of JSON");
        let position = message["position"].as_u64().expect("a position");
        let parts = message["parts"].as_array().expect("a list").iter();
        parts.map(|found| (position, part(found))).collect::<Vec<_>>()
    };
    lines.flat_map(message).collect()
}
