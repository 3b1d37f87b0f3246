//! Where a server listens: bound at once, so that its address is known, and served when it is started.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, ToSocketAddrs};
use twobox_core::{Error, ErrorKind, Result};

/// A bound socket.
#[derive(Clone)]
pub(super) struct Socket {
    /// Taken by whoever serves, so that nothing listens any more once that has ended.
    listener: Arc<Mutex<Option<TcpListener>>>,
    pub(super) address: SocketAddr,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<tokio_rustls::TlsAcceptor>,
}

impl Socket {
    pub(super) async fn bind(address: impl ToSocketAddrs) -> Result<Self> {
        let bound = async { Self::of(TcpListener::bind(address).await?) };
        bound
            .await
            .map_err(|error| Error::new(ErrorKind::Unavailable, "cannot bind the address").with_source(error))
    }

    pub(super) fn of(listener: TcpListener) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        Ok(Self {
            listener: Arc::new(Mutex::new(Some(listener))),
            address,
            #[cfg(feature = "tls")]
            tls: None,
        })
    }

    /// The socket to listen on: the one that was bound, or, if that was served already, another on the same address.
    pub(super) async fn take_listener(&self) -> Result<TcpListener> {
        let bound = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listener) = bound {
            return Ok(listener);
        }
        TcpListener::bind(self.address).await.map_err(|error| {
            let text =
                "cannot bind the address: end whatever else listens there; it is tried again until then";
            Error::new(ErrorKind::Unavailable, text).with_source(error)
        })
    }
}
