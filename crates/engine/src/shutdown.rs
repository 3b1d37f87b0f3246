//! Asking running parts to stop.

use tokio::sync::watch;

/// Tells a running part when to stop. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// Asks every part that holds the matching [`Shutdown`] to stop. Dropping it asks as well.
#[derive(Debug)]
pub struct ShutdownHandle(watch::Sender<bool>);

impl Shutdown {
    /// A handle and its signal.
    #[must_use]
    pub fn new() -> (ShutdownHandle, Self) {
        let (sender, receiver) = watch::channel(false);
        (ShutdownHandle(sender), Self(receiver))
    }

    /// Completes when asked to stop.
    pub async fn requested(&mut self) {
        // An error means that the handle is gone, which asks as well.
        let _: Result<_, _> = self.0.wait_for(|stop| *stop).await.map(drop);
    }

    /// Whether asked to stop.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

impl ShutdownHandle {
    /// Asks to stop. Asking twice is fine.
    pub fn request(&self) {
        self.0.send_replace(true);
    }
}
