//! A client by hand: sends what a test writes, however wrong it is.

use std::net::SocketAddr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than anything takes that works.
pub(super) const EVER: Duration = Duration::from_secs(60);

/// A request in the making.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    line: String,
    host: Option<String>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Ask {
    pub(super) fn new(method: &str, target: &str) -> Self {
        Self {
            line: format!("{method} {target} HTTP/1.1"),
            host: Some("127.0.0.1".into()),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub(super) fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    pub(super) fn post(target: &str, body: &Value) -> Self {
        Self::new("POST", target).raw(body.to_string().as_bytes())
    }

    /// A body of any kind that says it is JSON.
    pub(super) fn raw(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self.header("content-type", "application/json")
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self
    }

    pub(super) fn host(mut self, host: Option<&str>) -> Self {
        self.host = host.map(Into::into);
        self
    }

    pub(super) fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{}\r\n", self.line);
        if let Some(host) = &self.host {
            head += &format!("host: {host}\r\n");
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !self.body.is_empty() {
            head += &format!("content-length: {}\r\n", self.body.len());
        }
        head += "connection: close\r\n\r\n";
        [head.as_bytes(), &self.body].concat()
    }

    pub(super) async fn send(&self, to: SocketAddr) -> Reply {
        tokio::time::timeout(EVER, exchange(to, &self.bytes())).await.expect("an answer comes")
    }
}

async fn exchange(to: SocketAddr, request: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(to).await.unwrap();
    // A server that has refused a request need not read it to its end.
    let _: std::io::Result<()> = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _: std::io::Result<usize> = stream.read_to_end(&mut answer).await;
    Reply::parse(&answer)
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Reply {
    fn parse(answer: &[u8]) -> Self {
        let at = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a whole head");
        let head = String::from_utf8(answer[..at].to_vec()).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ").expect("a header");
            (name.to_ascii_lowercase(), value.into())
        });
        Self { status, headers: headers.collect(), body: answer[at + 4..].to_vec() }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The answer to a request that went well.
    pub(super) fn ok<T: DeserializeOwned>(&self) -> T {
        assert_eq!(self.status, 200, "{}", self.text());
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Fails unless it is refused with this status and code, in the one shape that errors have.
    pub(super) fn refused(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{}", self.text());
        let error: crate::api::ErrorAnswer = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(error.error.code, code, "{}", self.text());
        assert!(!error.error.message.is_empty() && !error.error.remedy.is_empty(), "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/json"));
    }
}
