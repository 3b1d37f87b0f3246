//! Telling systemd how things are (`Type=notify`). Without systemd there is nobody to tell.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use twobox_core::one_line;

/// Sends one line to whoever started this process and waits for it. That nobody hears it is no failure.
pub(super) fn tell(line: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, line) {
        tracing::warn!(error = one_line(&error), "cannot notify systemd");
    }
}

fn send(socket: &OsString, line: &str) -> std::io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(line.as_bytes(), &address).map(drop)
}
