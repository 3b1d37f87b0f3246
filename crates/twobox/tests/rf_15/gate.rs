//! A gate that handlers wait at, so that a test knows that one is running and decides when it goes on.

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::process::EVER;

/// The gate.
pub(crate) struct Gate {
    listener: TcpListener,
    pub(crate) address: String,
}

/// A handler that waits; it goes on when this is dropped.
pub(crate) struct Waiting {
    _handler: TcpStream,
}

impl Gate {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Self { listener, address }
    }

    /// Waits until a handler is running.
    pub(crate) async fn handler(&self) -> Waiting {
        let arrived = timeout(EVER, self.listener.accept()).await.expect("no handler runs");
        Waiting { _handler: arrived.unwrap().0 }
    }
}
