//! The HTTP client of one session with a receiver.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::super::secret::read_secret;
use super::super::tls;
use crate::config::Secret;
use crate::rejecting::Failure;

/// How long a connection may take to open.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The system probes a silent connection after this time.
const PROBE_AFTER: Duration = Duration::from_secs(10);
/// Largest body of an answer, in bytes.
const ANSWER_BYTES: usize = 64 << 10;
/// Most characters of a receiver's text in an error.
const REASON_CHARS: usize = 1_000;

/// Address and credentials of a receiver.
#[derive(Clone, Debug)]
pub struct Place {
    url: Uri,
    token: Option<Secret>,
    ca_file: Option<PathBuf>,
    /// How long a check may take.
    within: Duration,
}

/// A client for one receiver. It keeps a connection open between requests.
#[derive(Debug)]
pub(super) struct Receiver {
    url: Uri,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    authorization: Option<HeaderValue>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// A header of a request.
pub(super) type Header = (&'static str, String);

impl Place {
    /// The receiver at `url`, with a bearer token, if there is one. With `https`, it must be
    /// certified by the authorities in `ca_file`, or else by those of this machine. A check takes
    /// at most `within`.
    ///
    /// # Errors
    /// One sentence, if the url is malformed or contains a password.
    pub fn new(
        url: &str,
        token: Option<Secret>,
        ca_file: Option<PathBuf>,
        within: Duration,
    ) -> Result<Self, String> {
        let named = || {
            "`url` contains a name or a password; give a token with `token_file` or `token_env`".to_owned()
        };
        let malformed = || match url.contains('@') {
            // The text may contain a password.
            true => named(),
            false => format!("'{url}' is not the url of a receiver; give http://host or https://host"),
        };
        let parsed: Uri = url.parse().map_err(|_| malformed())?;
        let authority = parsed.authority().ok_or_else(malformed)?;
        if authority.as_str().contains('@') {
            return Err(named());
        }
        match parsed.scheme_str() {
            Some("http" | "https") => Ok(Self { url: parsed, token, ca_file, within }),
            _ => Err(malformed()),
        }
    }

    /// Sends a request that changes nothing, within the time for checks.
    pub(super) async fn check(
        &self,
        method: Method,
        headers: &[Header],
    ) -> Result<(Receiver, Answer), String> {
        let receiver = self.receiver()?;
        let within = self.within.as_secs_f64();
        match tokio::time::timeout(self.within, receiver.send(method, headers, Bytes::new())).await {
            Ok(answer) => answer.map(|answer| (receiver, answer)),
            Err(_) => Err(format!(
                "{} does not answer within {within} s; start the receiver, or correct its url",
                self.url
            )),
        }
    }

    /// A client with the present token and authorities. Connects to nothing.
    pub(super) fn receiver(&self) -> Result<Receiver, String> {
        let authorization = self.token.as_ref().map(|token| {
            let token = read_secret("token", token)?;
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_| "the token has characters that no header may have")?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        });
        let tls = match self.url.scheme_str() {
            Some("https") => tls::settings(self.ca_file.as_deref())?,
            _ => tls::unused()?,
        };
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_WITHIN));
        connector.set_keepalive(Some(PROBE_AFTER));
        connector.set_keepalive_interval(Some(PROBE_AFTER));
        connector.set_keepalive_retries(Some(3));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Receiver { url: self.url.clone(), client, authorization: authorization.transpose()? })
    }
}

impl Receiver {
    /// Sends a request and reads the answer.
    ///
    /// # Errors
    /// One sentence. The receiver may have processed the request.
    pub(super) async fn send(
        &self,
        method: Method,
        headers: &[Header],
        body: Bytes,
    ) -> Result<Answer, String> {
        let mut request = Request::new(Full::new(body));
        (*request.method_mut(), *request.uri_mut()) = (method, self.url.clone());
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        for (name, value) in headers {
            let value =
                HeaderValue::try_from(value).expect("names of players and targets are valid in headers");
            request.headers_mut().insert(HeaderName::from_static(name), value);
        }
        let answer = self.client.request(request).await.map_err(|cause| self.unreachable(&cause))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
        let body = body.map_err(|cause| self.unreachable(cause.as_ref()))?.to_bytes();
        Ok(Answer { status, body })
    }

    fn unreachable(&self, error: &(dyn Error + 'static)) -> String {
        let mut cause = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        format!("{} does not answer ({cause}); start the receiver, or correct its url", self.url)
    }

    /// The sentence for an answer that the contract does not have.
    pub(super) fn wrong(&self, what: &str) -> String {
        format!("{} breaks the contract of HTTP targets: {what}; correct the receiver, or the url", self.url)
    }

    /// The sentence for an answer with an error.
    pub(super) fn failed(&self, answer: &Answer) -> String {
        let remedy = match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; correct the token",
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => "; correct the url, or the receiver",
            status if status.is_redirection() => "; give the url to which it leads",
            _ => "",
        };
        format!("{} answers {}{}{remedy}", self.url, answer.status, answer.reason())
    }

    /// The outcome of a POST with a status that all contracts share. Errors that concern the
    /// credentials or the url reject no message: they would reject all.
    pub(super) fn judge(&self, answer: &Answer) -> Result<(), Failure> {
        match answer.status {
            status if status.is_success() => Ok(()),
            StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_EARLY
            | StatusCode::TOO_MANY_REQUESTS => Err(Failure::broken(self.failed(answer))),
            status if status.is_client_error() => {
                Err(Failure::Rejected(format!("the receiver answers {status}{}", answer.reason())))
            }
            _ => Err(Failure::broken(self.failed(answer))),
        }
    }
}

impl Answer {
    /// The first line of the body, after a colon. Empty without a body.
    fn reason(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        match text.trim().lines().next() {
            None => String::new(),
            Some(line) => format!(": {}", line.chars().take(REASON_CHARS).collect::<String>()),
        }
    }
}
