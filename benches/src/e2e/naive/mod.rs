//! What Twobox is compared with: the loop that people write by hand.
//!
//! Claim a message, post it, let the receiver commit it once, mark it sent, and so on. Each of its three commits
//! is durable, and nothing is lost or done twice. It is a good specimen of its kind: prepared statements, an
//! index for what is due, time-ordered ids, one connection that is kept open. People write it over an HTTP library;
//! a second one on bare blocking sockets shows how much of it that is.
//!
//! FROZEN: every promise about end-to-end speed is a multiple of this loop. Whoever makes it faster or slower
//! changes all of them; measure something else instead.

mod bare;
mod library;
pub(crate) mod receiver;
pub(crate) mod sender;

use std::path::PathBuf;
use std::time::Duration;

use twobox::rusqlite::Connection;

use super::process::{Process, number};
use crate::Result;
use crate::lab::Lab;
use crate::stats::per_second;
use crate::store::check;

/// So many messages wait before every slice: more than any loop of this kind manages in one.
const BACKLOG: u64 = 20_000;
/// Both write-ahead logs have their full size after this.
const WARM_UP: Duration = Duration::from_millis(500);

/// What the messages travel through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Library,
    Bare,
}

impl Wire {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Bare => "bare",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Library, Self::Bare].into_iter().find(|wire| wire.as_str() == name)
    }
}

/// Both processes.
#[derive(Debug)]
pub(crate) struct Naive {
    folder: PathBuf,
    sender: Process,
    receiver: Process,
    sent: u64,
}

impl Naive {
    pub(crate) fn start(lab: &mut Lab, wire: Wire) -> Result<Self> {
        let folder = lab.new_folder()?;
        let name = folder.to_str().ok_or("the folder's name is not text")?.to_owned();
        let (receiver, first) = Process::start("naive-receiver", &[wire.as_str(), &name])?;
        let address = first["address"].as_str().ok_or("the receiver has no address")?;
        let (sender, _) = Process::start("naive-sender", &[wire.as_str(), &name, address])?;
        let mut naive = Self { folder, sender, receiver, sent: 0 };
        naive.fill()?;
        naive.run(WARM_UP)?;
        Ok(naive)
    }

    /// Fills the backlog up.
    pub(crate) fn fill(&mut self) -> Result<()> {
        self.sender.ask(&format!("fill\t{BACKLOG}")).map(drop)
    }

    /// Sends for `duration`. Returns messages per second.
    pub(crate) fn run(&mut self, duration: Duration) -> Result<f64> {
        let answer = self.sender.ask(&format!("run\t{}", duration.as_millis()))?;
        let messages = number(&answer, "messages")?;
        self.sent += messages;
        Ok(per_second(messages, Duration::from_micros(number(&answer, "micros")?)))
    }

    /// Fails unless every message that was sent has had its effect, once.
    pub(crate) fn check(&mut self) -> Result<()> {
        let (sender, receiver) = (self.sender.ask("count")?, self.receiver.ask("count")?);
        check("messages sent by hand", self.sent, number(&sender, "sent")?)?;
        check("messages stuck in the naive loop", 0, number(&sender, "sending")?)?;
        check("messages in the naive inbox", self.sent, number(&receiver, "inbox")?)?;
        check("naive effects", self.sent, number(&receiver, "orders")?)
    }

    pub(crate) fn remove(self) -> Result<()> {
        self.sender.stop()?;
        self.receiver.stop()?;
        Ok(std::fs::remove_dir_all(self.folder)?)
    }
}

/// A database as either side uses it.
fn open(path: PathBuf) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
    Ok(connection)
}

/// A number that a query finds.
fn count(connection: &Connection, query: &str) -> Result<u64> {
    let count: i64 = connection.query_row(query, [], |row| row.get(0))?;
    Ok(u64::try_from(count)?)
}
