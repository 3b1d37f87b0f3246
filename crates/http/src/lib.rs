//! Twobox over HTTP/1.1: a transport that carries signed batches, and a server that takes them.
//!
//! Two routes: `POST /_rf/receive` takes one envelope, `POST /_rf/receive/batch` an array of them, answered item by
//! item. What both accept, answer and refuse is in `docs/HTTP.md`.
//!
//! Both sides are signed unless they are asked for by the name *unsigned*. A signed sender takes nothing for an
//! answer that its receiver has not signed for this very request; a signed receiver takes nothing from anybody
//! whose key it does not hold. Neither follows redirects, reads proxies from the environment or unpacks anything.
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `tls` | no | `https://` on both sides, by rustls |

mod client;
mod server;
#[cfg(feature = "tls")]
mod tls;
mod url;

pub use crate::client::{Call, ClientLimits, Http, HttpClient, Reply};
pub use crate::server::{Front, HttpServer, ServerLimits, TurnedAway, Web, check_json};
#[cfg(feature = "tls")]
pub use crate::tls::{TlsIdentity, TlsRoots};

/// Takes one envelope.
const RECEIVE: &str = "/_rf/receive";
/// Takes a batch of envelopes; an empty one is a probe.
const RECEIVE_BATCH: &str = "/_rf/receive/batch";
