//! A sending and a receiving process, and what must be in their databases.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use twobox::{VerifyOptions, verify};

use super::Peaks;
use super::latency::{self, Latency};
use super::process::{Process, number};
use super::{receiver, sender};
use crate::Result;
use crate::lab::Lab;
use crate::stats::per_second;
use crate::store::check;
use crate::syncs::commits_of;

/// A new pair sends this many messages first: then connections are open, and nothing is done for the first time.
const WARM_UP: u64 = 20_000;

/// How a backlog was drained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drained {
    pub(crate) per_second: f64,
    /// Transactions of the receiver.
    pub(crate) commits: u32,
}

/// What callers did in a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lived {
    pub(crate) per_second: f64,
    pub(crate) latency: Latency,
}

/// What callers did while the sender's file was backed up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    pub(crate) lived: Lived,
    /// How long the backup took.
    pub(crate) took: Duration,
    /// Its size.
    pub(crate) bytes: u64,
    /// The longest that the write-ahead log was meanwhile.
    pub(crate) wal_bytes: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Pair {
    folder: PathBuf,
    sender: Process,
    receiver: Process,
    enqueued: u64,
    /// Of these, how many came with a row of the user.
    orders: u64,
}

/// What both sides say of something that is timed.
struct Timed {
    messages: u64,
    /// What the sender said.
    answer: serde_json::Value,
    latency: Latency,
}

impl Timed {
    fn lived(&self) -> Result<Lived> {
        let took = Duration::from_micros(number(&self.answer, "micros")?);
        Ok(Lived { per_second: per_second(self.messages, took), latency: self.latency })
    }
}

impl Pair {
    /// Two new processes with new databases, warmed up.
    pub(crate) fn start(lab: &mut Lab) -> Result<Self> {
        Self::of(lab, &std::env::current_exe()?)
    }

    /// As [`start`](Self::start), of another build of this program.
    pub(crate) fn of(lab: &mut Lab, program: &Path) -> Result<Self> {
        Self::with_receiver(lab, program, |folder| Process::of(program, "receiver", &[folder]))
    }

    /// As [`start`](Self::start), with a receiver that is watched by another program.
    pub(crate) fn watched(lab: &mut Lab, watcher: impl FnOnce(&Path) -> Command) -> Result<Self> {
        let program = std::env::current_exe()?;
        Self::with_receiver(lab, &program, |folder| {
            Process::watched("receiver", watcher(Path::new(folder)), &[folder])
        })
    }

    fn with_receiver(
        lab: &mut Lab,
        program: &Path,
        start: impl FnOnce(&str) -> Result<(Process, serde_json::Value)>,
    ) -> Result<Self> {
        let folder = lab.new_folder()?;
        let name = folder.to_str().ok_or("the folder's name is not text")?.to_owned();
        let (receiver, first) = start(&name)?;
        let address = first["address"].as_str().ok_or("the receiver has no address")?;
        let (sender, _) = Process::of(program, "sender", &[&name, address])?;
        let mut pair = Self { folder, sender, receiver, enqueued: 0, orders: 0 };
        pair.fill(WARM_UP)?;
        pair.drain()?;
        Ok(pair)
    }

    /// Puts messages into the outbox while nobody sends them.
    pub(crate) fn fill(&mut self, messages: u64) -> Result<()> {
        self.sender.ask(&format!("fill\t{messages}"))?;
        self.enqueued += messages;
        Ok(())
    }

    /// Sends what is in the outbox. Returns how long it took, by the sender's clock.
    pub(crate) fn drain(&mut self) -> Result<Duration> {
        let answer = self.sender.ask(&format!("drain\t{}", self.enqueued))?;
        Ok(Duration::from_micros(number(&answer, "micros")?))
    }

    /// Sends a backlog of `messages`, which are in the outbox already.
    pub(crate) fn drain_backlog(&mut self, messages: u64) -> Result<Drained> {
        let file = self.folder.join(receiver::FILE);
        let before = commits_of(&file)?; // this process does not have the file open
        let per_second = per_second(messages, self.drain()?);
        Ok(Drained { per_second, commits: commits_of(&file)?.wrapping_sub(before) })
    }

    /// How large the sender's file is.
    pub(crate) fn sender_bytes(&self) -> Result<u64> {
        Ok(std::fs::metadata(self.folder.join(sender::FILE))?.len())
    }

    /// Starts the relay for good.
    pub(crate) fn start_relay(&mut self) -> Result<()> {
        self.sender.ask("start").map(drop)
    }

    /// Lets callers enqueue while it is sent, until everything is.
    pub(crate) fn live(&mut self, callers: usize, duration: Duration) -> Result<Lived> {
        Ok(self.live_counted(callers, duration)?.0)
    }

    /// As [`live`](Self::live), with how many messages there were.
    pub(crate) fn live_counted(&mut self, callers: usize, duration: Duration) -> Result<(Lived, u64)> {
        let request = format!("live\t{callers}\t{}\t{}", duration.as_millis(), self.enqueued);
        let timed = self.timed(&request)?;
        Ok((timed.lived()?, timed.messages))
    }

    /// The processor time of both processes so far.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        Ok(self.sender.processor_time()? + self.receiver.processor_time()?)
    }

    /// Lets callers enqueue while it is sent and the sender's file is backed up, until that is done and everything is
    /// sent.
    pub(crate) fn live_during_backup(&mut self, callers: usize) -> Result<Saved> {
        let request = format!("backup\t{callers}\t{}\t{}", self.backup().display(), self.enqueued);
        let timed = self.timed(&request)?;
        let number = |name| number(&timed.answer, name);
        let (took, bytes, wal_bytes) =
            (Duration::from_micros(number("backup_micros")?), number("bytes")?, number("wal_bytes")?);
        Ok(Saved { lived: timed.lived()?, took, bytes, wal_bytes })
    }

    /// Fails unless the backup is sound; removes it. No part of a slice: it keeps the disk busy.
    pub(crate) fn check_backup(&self) -> Result<()> {
        let verified = verify(self.backup(), VerifyOptions::Quick)?;
        if !verified.is_sound() {
            return Err(format!("the backup is not sound: {verified:?}").into());
        }
        std::fs::remove_file(self.backup())?;
        Ok(std::fs::File::open(&self.folder)?.sync_all()?)
    }

    fn backup(&self) -> PathBuf {
        self.folder.join("shop.backup")
    }

    /// Enqueues a message every so often.
    pub(crate) fn trickle(&mut self, every: Duration, messages: u64) -> Result<Latency> {
        let request = format!("trickle\t{}\t{messages}\t{}", every.as_millis(), self.enqueued);
        Ok(self.timed(&request)?.latency)
    }

    /// Something that is timed on both sides.
    fn timed(&mut self, request: &str) -> Result<Timed> {
        let (committed, handled) = (self.folder.join("committed"), self.folder.join("handled"));
        self.receiver.ask("time")?;
        let answer = self.sender.ask(&format!("{request}\t{}", committed.display()))?;
        self.receiver.ask(&format!("times\t{}", handled.display()))?;
        let messages = number(&answer, "messages")?;
        self.enqueued += messages;
        self.orders += messages;
        Ok(Timed { messages, answer, latency: latency::between(&committed, &handled)? })
    }

    /// Fails unless every message that was enqueued is sent and has had its effect, once.
    pub(crate) fn check(&mut self) -> Result<()> {
        let (sender, receiver) = (self.sender.ask("count")?, self.receiver.ask("count")?);
        check("messages in the log", self.enqueued, number(&sender, "log")?)?;
        check("rows of the sending user", self.orders, number(&sender, "orders")?)?;
        check("messages sent", self.enqueued, number(&sender, "sent")?)?;
        check("messages failed or expired", 0, number(&sender, "failed")?)?;
        check("messages in the inbox", self.enqueued, number(&receiver, "inbox")?)?;
        check("effects", self.enqueued, number(&receiver, "orders")?)
    }

    /// Ends both processes and makes room on the disk.
    pub(crate) fn remove(self, peaks: &mut Peaks) -> Result<()> {
        peaks.sender = peaks.sender.max(self.sender.peak_memory()?);
        peaks.receiver = peaks.receiver.max(self.receiver.peak_memory()?);
        let folder = self.stop()?;
        Ok(std::fs::remove_dir_all(folder)?)
    }

    /// Ends both processes and returns their folder.
    pub(crate) fn stop(self) -> Result<PathBuf> {
        self.sender.stop()?;
        self.receiver.stop()?;
        Ok(self.folder)
    }
}
