//! The naive loop over the HTTP library that most Rust services use. FROZEN, as all of the naive loop.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::runtime::Runtime;

use crate::Result;

/// The sender's end.
#[derive(Debug)]
pub(super) struct Poster {
    runtime: Runtime,
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
}

impl Poster {
    pub(super) fn new(address: SocketAddr) -> Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Ok(Self {
            runtime: Runtime::new()?,
            client: Client::builder(TokioExecutor::new()).build(connector),
            uri: format!("http://{address}/messages").parse()?,
        })
    }

    /// Posts one message and returns the status of the answer.
    pub(super) fn post(&self, key: &str, body: Vec<u8>) -> Result<u16> {
        let request = Request::post(self.uri.clone())
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(Full::from(body))?;
        self.runtime.block_on(async {
            let answer = self.client.request(request).await?;
            let status = answer.status().as_u16();
            answer.into_body().collect().await?;
            Ok(status)
        })
    }
}

/// Takes messages, one at a time: what `handle` does with key and body may block.
pub(super) fn accept(
    listener: TcpListener,
    handle: impl FnMut(&str, &[u8]) -> Result<()> + Send + 'static,
) -> Result<()> {
    let handle = Arc::new(Mutex::new(handle));
    listener.set_nonblocking(true)?;
    Runtime::new()?.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let handle = Arc::clone(&handle);
            let service = service_fn(move |request| answer(request, Arc::clone(&handle)));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    })
}

async fn answer<H: FnMut(&str, &[u8]) -> Result<()> + Send + 'static>(
    request: Request<Incoming>,
    handle: Arc<Mutex<H>>,
) -> Result<Response<Full<Bytes>>> {
    let key = request.headers().get("idempotency-key").map(|key| key.to_str().map(str::to_owned));
    let key = key.ok_or("no key")??;
    let body = request.into_body().collect().await?.to_bytes();
    let handled = tokio::task::spawn_blocking(move || {
        (handle.lock().unwrap_or_else(PoisonError::into_inner))(&key, &body)
    });
    let mut answer = Response::new(Full::from("{}"));
    if let Err(error) = handled.await? {
        eprintln!("naive receiver: {error}");
        *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    }
    Ok(answer)
}
