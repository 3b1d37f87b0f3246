//! Where a command acts: on a running node, by its API, or directly on a database file.
//!
//! Both speak the same API: on a file its routes are called without a network, so every command is written once, and
//! what it does stands in the same audit trail.

use std::path::PathBuf;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::Request;
use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use twobox::{Call, ClientLimits, HttpClient};
use twobox_core::chain;

use super::failure::Failure;
use super::file::FileOptions;
use super::text::visible;
use crate::admin::Direct;
use crate::api::ErrorAnswer;
use crate::config::{Secret, TOKEN_VARIABLE};
use crate::exit::Exit;
use crate::serve::{Target, escape};

/// How long a node may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer that is read: a page of a thousand messages with long errors is far smaller.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Where a command acts. Without any of these: on the database file that the configuration names.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Where")]
pub(crate) struct PlaceOptions {
    /// A running node, by the URL of its API. Its token is taken from $TWOBOX_ADMIN_TOKEN or --token-file.
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "database", "prefix", "name"])]
    node: Option<String>,
    /// A file with the token on its first line, that only its owner can read.
    #[arg(long, value_name = "FILE", requires = "node")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    file: FileOptions,
    /// The service whose boxes in the file are meant. Default: that of the configuration, or the only one in the file.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl PlaceOptions {
    /// Opens the file, or gets ready to ask the node.
    pub(super) async fn open(&self) -> crate::Result<Place> {
        match &self.node {
            Some(url) => Ok(Place::Node(Box::new(Remote::new(url, self.token_file.as_deref())?))),
            None => Ok(Place::File(self.file.direct(self.name.as_deref()).await?)),
        }
    }
}

/// Where a command acts.
#[derive(Debug)]
pub(super) enum Place {
    Node(Box<Remote>),
    File(Direct),
}

/// What was answered.
struct Answered {
    status: u16,
    retry_after: Option<Duration>,
    body: Bytes,
}

impl Place {
    /// Asks for something.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<T, Failure> {
        let target = format!("{path}{}", in_url(query));
        read(self.send("GET", &target, Vec::new()).await?)
    }

    /// Asks for something to be done.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        read(self.send("POST", path, body).await?)
    }

    async fn send(&self, method: &str, target: &str, body: Vec<u8>) -> Result<Answered, Failure> {
        match self {
            Self::Node(remote) => remote.send(method, target, body).await,
            Self::File(direct) => {
                let request = Request::builder().method(method).uri(target).body(Bytes::from(body));
                let request = request.map_err(|error| Failure::usage(error.to_string()))?;
                let answer = direct.answer(request).await;
                Ok(Answered { status: answer.status().as_u16(), retry_after: None, body: answer.into_body() })
            }
        }
    }
}

/// A path with a part that somebody has typed.
pub(super) fn path(before: &str, name: &str, after: &str) -> Result<String, Failure> {
    // These would lead elsewhere, and no message or destination is called so.
    if matches!(name, "" | "." | "..") {
        return Err(Failure::new(Exit::NotFound, format!("there is nothing called {name:?}")));
    }
    Ok(format!("{before}/{}{after}", escape(name)))
}

/// What was asked for, as it stands in a URL.
fn in_url(query: &impl Serialize) -> String {
    let Ok(Value::Object(fields)) = serde_json::to_value(query) else { return String::new() };
    let pair = |(name, value): (&String, &Value)| match value {
        Value::Null => None,
        Value::String(text) => Some(format!("{name}={}", escape(text))),
        other => Some(format!("{name}={other}")),
    };
    let pairs: Vec<String> = fields.iter().filter_map(pair).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn read<T: DeserializeOwned>(answered: Answered) -> Result<T, Failure> {
    let Answered { status, retry_after, body } = answered;
    let odd = |what: &str| {
        Failure::new(
            Exit::Failed,
            format!("status {status} with {what}: is this the API of a node of this version?"),
        )
    };
    if status == 200 {
        return serde_json::from_slice(&body).map_err(|error| odd(&format!("an odd answer ({error})")));
    }
    let answer: ErrorAnswer = serde_json::from_slice(&body).map_err(|_| odd("an answer of another kind"))?;
    Err(Failure::answered(status, &answer.error, retry_after))
}

/// A running node.
pub(super) struct Remote {
    client: HttpClient,
    url: String,
    authorization: String,
}

impl std::fmt::Debug for Remote {
    /// Shows neither the URL nor the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

impl Remote {
    fn new(url: &str, token_file: Option<&std::path::Path>) -> Result<Self, Failure> {
        let target = Target::new(url).map_err(|text| Failure::usage(format!("--node: {text}")))?;
        if url.contains('?') {
            return Err(Failure::usage("--node: the URL has a query: give what comes before it"));
        }
        if !target.is_loopback() && !url.starts_with("https://") {
            eprintln!(
                "twobox: warning: the token travels unencrypted: use https, or a tunnel to the node's machine"
            );
        }
        let authorization = format!("Bearer {}", token(token_file)?);
        let limits = ClientLimits { answer_timeout: ANSWER_TIMEOUT, ..ClientLimits::default() };
        let client = HttpClient::new(limits, ANSWER_BYTES_MAX);
        Ok(Self { client, url: url.trim_end_matches('/').into(), authorization })
    }

    async fn send(&self, method: &str, target: &str, body: Vec<u8>) -> Result<Answered, Failure> {
        let mut call = Call::new(method, &format!("{}{target}", self.url), body.clone())?
            .header("authorization", &self.authorization)?;
        if !body.is_empty() {
            call = call.header("content-type", "application/json")?;
        }
        let reply = self.client.call(call).await.map_err(|error| {
            Failure::new(Exit::Failed, format!("the node does not answer: {}", visible(&chain(&error))))
        })?;
        let (status, retry_after) = (reply.status, reply.retry_after());
        let body =
            reply.body.ok_or_else(|| Failure::new(Exit::Failed, "the answer is too large: ask for less"))?;
        Ok(Answered { status, retry_after, body })
    }
}

/// The token for a node: never from the command line, where everybody on the machine can see it.
fn token(file: Option<&std::path::Path>) -> Result<String, Failure> {
    let variable = if file.is_some() { "" } else { TOKEN_VARIABLE };
    let secret = Secret::read(variable, file).map_err(|text| {
        Failure::usage(format!("the token of the node: {text}; or name a file with --token-file"))
    })?;
    let lines = secret.as_ref().map(Secret::bytes).unwrap_or_default();
    let first = lines.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // The node's own files may have a name before each token.
    let last = first.split(u8::is_ascii_whitespace).rfind(|word| !word.is_empty());
    let token = last.and_then(|token| std::str::from_utf8(token).ok());
    token.map(Into::into).ok_or_else(|| Failure::usage("the token of the node is empty, or not text"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn s16_what_somebody_types_stays_in_its_place_in_a_url() {
        assert_eq!(in_url(&json!({ "a": null, "b": "x&y=z #é", "c": 7 })), "?b=x%26y%3Dz%20%23%C3%A9&c=7");
        assert_eq!(in_url(&json!({})), "");
        assert_eq!(path("/a", "../b/c?d", "/e").unwrap(), "/a/..%2Fb%2Fc%3Fd/e");
        for odd in ["", ".", ".."] {
            assert_eq!(path("/a", odd, "").unwrap_err().exit, Exit::NotFound);
        }
    }
}
