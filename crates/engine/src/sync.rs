//! Locks and tasks of the engines.
//!
//! They are the standard library's and the runtime's. With the feature `shuttle` they belong to a scheduler that
//! decides who runs next, so that a test can try many schedules of the same code.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Mutex, MutexGuard};
#[cfg(not(feature = "shuttle"))]
pub(crate) use tokio::task::{JoinHandle, JoinSet, spawn};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::future::{JoinHandle, spawn};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(crate) use self::scheduled::JoinSet;

/// Runs a loop that polls what it has started, and is woken by it while it does. A scheduler decides itself who goes on.
pub(crate) async fn run_loop(running: impl Future<Output = ()>) {
    let running = std::pin::pin!(running);
    if cfg!(feature = "shuttle") {
        running.await;
    } else {
        twobox_core::AtOnce::new(running).await;
    }
}

#[cfg(feature = "shuttle")]
mod scheduled {
    use std::future::Future;

    use shuttle::future::{JoinError, JoinHandle, spawn};
    use tokio::sync::mpsc;

    /// What the runtime's is: tasks that end with it, joined in the order in which they end.
    pub(crate) struct JoinSet<T> {
        tasks: Vec<JoinHandle<()>>,
        running: usize,
        ended: mpsc::UnboundedReceiver<T>,
        end: mpsc::UnboundedSender<T>,
    }

    impl<T: Send + 'static> JoinSet<T> {
        pub(crate) fn new() -> Self {
            let (end, ended) = mpsc::unbounded_channel();
            Self { tasks: Vec::new(), running: 0, ended, end }
        }

        pub(crate) fn len(&self) -> usize {
            self.running
        }

        pub(crate) fn spawn(&mut self, task: impl Future<Output = T> + Send + 'static) {
            let end = self.end.clone();
            self.running += 1;
            self.tasks.retain(|task| !task.is_finished());
            self.tasks.push(spawn(async move {
                // Nobody waits any more: the set is gone.
                let _: Result<(), _> = end.send(task.await);
            }));
        }

        pub(crate) async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
            if self.running == 0 {
                return None;
            }
            let value = self.ended.recv().await?;
            self.running -= 1;
            Some(Ok(value))
        }
    }

    impl<T> Drop for JoinSet<T> {
        fn drop(&mut self) {
            self.tasks.iter().for_each(JoinHandle::abort);
        }
    }
}
