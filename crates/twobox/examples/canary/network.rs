//! Peers that send and answer nonsense with canaries in it.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use twobox::BoxError;

use crate::values::{HEADER, PAYLOAD};

/// A server that answers every request with what is no answer. Returns its URL.
pub(crate) async fn garbage() -> Result<String, BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let body = format!("{{\"answers\": [{{\"messageId\": [\"{PAYLOAD}\"]}}]}}");
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.twobox+json\r\nx-canary: {HEADER}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            // Whoever hangs up early is no reason to stop.
            let _: std::io::Result<usize> = stream.read(&mut [0; 65_536]).await;
            let _: std::io::Result<()> = stream.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    Ok(url)
}

/// Requests that a server refuses in every way, with canaries wherever there is room. Prints the answers.
pub(crate) async fn strangers(url: &str) -> Result<(), BoxError> {
    let envelope = format!(
        "{{\"messageId\": \"stranger\", \"sourceServiceId\": \"shop\", \"messageType\": \"{PAYLOAD}\", \"endpoint\": \"Good\", \"payload\": \"{PAYLOAD}\", \"headers\": {{\"x\": \"{HEADER}\"}}}}"
    );
    let no_json = format!("{{\"payload\": \"{PAYLOAD}\"");
    let wrong_type =
        format!("{{\"messageId\": [\"{PAYLOAD}\"], \"headers\": {{\"authorization\": [\"{HEADER}\"]}}}}");
    let deep = format!("{{\"payload\": {}\"{PAYLOAD}\"{}}}", "[".repeat(500), "]".repeat(500));
    let post = |path: &str, kind: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: {HEADER}\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let mut requests = Vec::new();
    for body in [&envelope, &no_json, &wrong_type, &deep, &String::from(PAYLOAD)] {
        requests.push(post("/_rf/receive", "application/json", body));
        requests.push(post("/_rf/receive/batch", "application/json", &format!("[{body}]")));
    }
    requests.push(post("/_rf/receive/batch", "application/json", "[]"));
    requests.push(post("/_rf/receive", HEADER, &envelope));
    requests.push(post(&format!("/{PAYLOAD}?x={PAYLOAD}"), "application/json", &envelope));
    requests.push(format!("GET /_rf/receive?x={PAYLOAD} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
    requests.push(format!("{PAYLOAD} {HEADER}\r\n\r\n"));
    println!("== answers to strangers");
    for request in requests {
        let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // A server may cut instead of answering.
        let _: std::io::Result<usize> = stream.read_to_end(&mut answer).await;
        println!("{}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}
