//! Processes of the demonstration.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use super::order::SECRET;
use crate::Result;

/// A service that does not start or stop within this time never will.
const PATIENCE: Duration = Duration::from_secs(30);

/// The signal that nobody can ignore.
const SIGKILL: i32 = 9;

/// A running service. It ends when this is dropped, and when this process ends, however it ends.
pub(super) struct Service {
    child: Child,
    /// The first line it printed, if it was waited for.
    pub(super) said: String,
}

impl Service {
    /// Starts a service of this program; waits for its first line if it has something to say.
    pub(super) async fn start(arguments: &[String], secret: &str, says: bool) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .env(SECRET, secret)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut said = String::new();
        if says {
            let output = child.stdout.take().ok_or("a service has no output")?;
            tokio::time::timeout(PATIENCE, BufReader::new(output).read_line(&mut said)).await??;
            if said.is_empty() {
                return Err(format!("a service did not start: {}", arguments.join(" ")).into());
            }
        }
        Ok(Self { child, said: said.trim().to_owned() })
    }

    /// SIGKILL: it gets no chance to do anything. Fails if it was not this that ended it.
    pub(super) async fn kill(mut self) -> Result<()> {
        self.child.start_kill()?;
        let status = self.child.wait().await?;
        if status.signal() == Some(SIGKILL) { Ok(()) } else { Err(ended(status).into()) }
    }

    /// Asks it to stop, and waits until it has.
    pub(super) async fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await??;
        if status.success() { Ok(()) } else { Err(ended(status).into()) }
    }

    /// Whether it has ended without being asked.
    pub(super) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }
}

/// Completes when whoever started this process closes its input or is gone.
pub(super) async fn parent_is_gone() {
    let mut byte = [0];
    // Nothing is ever written to it, so any end of the read means the same.
    let _: std::io::Result<usize> = tokio::io::stdin().read(&mut byte).await;
}

fn ended(status: ExitStatus) -> String {
    format!("a service ended by itself, with {status}")
}
