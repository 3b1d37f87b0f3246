//! Just enough HTTP/1.1 for two peers that know each other, on a connection that is kept open. FROZEN, as all of
//! the naive loop.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::Result;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    input: BufReader<TcpStream>,
    output: TcpStream,
}

/// A request or an answer.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// The first line.
    pub(super) first: String,
    pub(super) key: String,
    pub(super) body: Vec<u8>,
}

impl Peer {
    pub(super) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { input: BufReader::new(stream.try_clone()?), output: stream })
    }

    pub(super) fn post(&mut self, key: &str, body: &[u8]) -> Result<Text> {
        let head = format!(
            "POST /messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Idempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.write(head, body)?;
        self.read()?.ok_or_else(|| "the naive receiver has hung up".into())
    }

    pub(super) fn answer(&mut self, status: &str) -> Result<()> {
        self.write(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n"), b"{}")
    }

    /// In one piece, so that it is one packet.
    fn write(&mut self, head: String, body: &[u8]) -> Result<()> {
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        Ok(self.output.write_all(&bytes)?)
    }

    /// `None` when the other side has hung up.
    pub(super) fn read(&mut self) -> Result<Option<Text>> {
        let mut text = Text::default();
        if self.input.read_line(&mut text.first)? == 0 {
            return Ok(None);
        }
        let mut line = String::new();
        loop {
            line.clear();
            self.input.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                text.body.resize(value.trim().parse()?, 0);
            } else if name.eq_ignore_ascii_case("idempotency-key") {
                value.trim().clone_into(&mut text.key);
            }
        }
        self.input.read_exact(&mut text.body)?;
        Ok(Some(text))
    }
}
