//! Child processes: started, told what to do, listened to, and dead when the test is over.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;
use twobox_testkit::example;

/// Longer than anything takes that works.
pub(crate) const EVER: Duration = Duration::from_secs(60);

/// A running program.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts an example of this package; it dies at the crash point, if one is given as `name:nth`.
    pub(crate) fn start(program: &str, arguments: &[&str], crash: Option<&str>) -> Self {
        let mut command = Command::new(example(program));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        command.env_remove(twobox_core::crash::VARIABLE);
        if let Some(point) = crash {
            command.env(twobox_core::crash::VARIABLE, point);
        }
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, output }
    }

    /// The next line it prints; `None` when it has ended.
    pub(crate) async fn says(&mut self) -> Option<String> {
        timeout(EVER, self.output.next_line()).await.expect("it says nothing").unwrap()
    }

    /// Waits for a line.
    pub(crate) async fn must_say(&mut self, line: &str) {
        assert_eq!(self.says().await.as_deref(), Some(line));
    }

    /// Writes a line to its input.
    pub(crate) async fn tell(&mut self, line: &str) {
        timeout(EVER, self.input.write_all(format!("{line}\n").as_bytes())).await.unwrap().unwrap();
    }

    /// Waits until it has died of its crash point. It must not have said anything any more.
    #[cfg(feature = "crash-points")]
    pub(crate) async fn dies(mut self) {
        assert_eq!(self.says().await, None, "the crash point was not passed in time");
        let status = self.ended().await;
        assert!(twobox_testkit::crash::died(status), "it has ended by itself: {status}");
    }

    /// Waits until it has given up. Returns the reason.
    pub(crate) async fn fails(mut self) -> String {
        let reason = self.says().await.unwrap();
        let status = self.ended().await;
        assert_eq!(status.code(), Some(1), "{reason}");
        reason
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) async fn stop(mut self) {
        drop(self.input);
        let status = timeout(EVER, self.child.wait()).await.expect("it does not stop").unwrap();
        assert!(status.success(), "{status}");
    }

    /// SIGKILL: it gets no chance to do anything.
    pub(crate) async fn kill(mut self) {
        self.child.start_kill().unwrap();
        self.ended().await;
    }

    async fn ended(&mut self) -> ExitStatus {
        timeout(EVER, self.child.wait()).await.expect("it does not end").unwrap()
    }
}

/// SIGKILL for both before either is waited for.
pub(crate) async fn kill_both(mut one: Process, mut other: Process) {
    one.child.start_kill().unwrap();
    other.child.start_kill().unwrap();
    let (one, other) = (one.ended().await, other.ended().await);
    assert_eq!((one.code(), other.code()), (None, None), "one had ended by itself: {one}, {other}");
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
