//! The user's own program: an HTTP endpoint that does what the test says.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use twobox_testkit::eventually;

use crate::world::EVER;

/// A request as the program got it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    pub(crate) fn id(&self) -> String {
        self.header("idempotency-key").unwrap().into()
    }
}

/// What the program answers: status line, headers and body. `None`: it never answers.
pub(crate) type Answer = Option<(&'static str, &'static [(&'static str, &'static str)], &'static str)>;

/// Done, without a word.
pub(crate) const DONE: Answer = Some(("200 OK", &[], ""));

type Script = Arc<dyn Fn(&Request, usize) -> Answer + Send + Sync>;

/// The program, as long as it runs.
pub(crate) struct Program {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    task: JoinHandle<()>,
}

impl Program {
    /// Answers what `script` says to a request and its number, which counts from 1.
    pub(crate) async fn start(script: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::new(script))
    }

    fn listening(listener: TcpListener, script: Script) -> Self {
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.spawn(talk(stream, Arc::clone(&script), Arc::clone(&noted)));
            }
        });
        Self { address, seen, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/in/{{endpoint}}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until it has seen this many requests.
    pub(crate) async fn until_seen(&self, count: usize) -> Vec<Request> {
        eventually("requests at the program", EVER, async || {
            Some(self.seen()).filter(|seen| seen.len() >= count)
        })
        .await
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A program that is down: its address is taken, and connections are refused.
pub(crate) struct Down(TcpSocket);

impl Down {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self(socket)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/in/{{endpoint}}", self.0.local_addr().unwrap())
    }

    pub(crate) fn up(self) -> Program {
        Program::listening(self.0.listen(64).unwrap(), Arc::new(|_, _| DONE))
    }
}

async fn talk(mut stream: TcpStream, script: Script, seen: Arc<Mutex<Vec<Request>>>) -> std::io::Result<()> {
    while let Some(request) = read(&mut stream).await? {
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(request.clone());
            seen.len()
        };
        let Some((status, headers, body)) = script(&request, number) else {
            std::future::pending::<()>().await;
            return Ok(());
        };
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let answer = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

async fn read(stream: &mut TcpStream) -> std::io::Result<Option<Request>> {
    let mut bytes = Vec::new();
    let body_at = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..body_at]).into_owned();
    let mut request = Request { head, body: bytes.split_off(body_at) };
    let length: usize = request.header("content-length").map_or(0, |value| value.parse().unwrap());
    while request.body.len() < length {
        if stream.read_buf(&mut request.body).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(request))
}
