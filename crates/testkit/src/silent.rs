//! An address that swallows whoever comes.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Longer than a connection within this machine takes.
const STUCK: Duration = Duration::from_secs(1);

/// An address at which nobody answers, not even by refusing: its queue is full, and Linux drops whoever knocks.
#[derive(Debug)]
pub struct Silent {
    address: SocketAddr,
    _full: (TcpListener, Vec<TcpStream>),
}

impl Silent {
    /// At an address of its own on the loopback interface, for as long as it lives.
    ///
    /// # Errors
    /// There is no socket to be had.
    pub async fn new() -> std::io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(1)?;
        let address = listener.local_addr()?;
        let mut queued = Vec::new();
        let mut stuck = 0;
        // Twice, because one may be stuck for another reason.
        while stuck < 2 {
            match tokio::time::timeout(STUCK, TcpStream::connect(address)).await {
                Ok(connected) => queued.push(connected?),
                Err(_) => stuck += 1,
            }
        }
        Ok(Self { address, _full: (listener, queued) })
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}
