//! What a running node offers to those who operate it.

use std::time::Duration;

use tokio::net::TcpListener;
use twobox::{Destination, Inbox, Outbox, Source, Sqlite, Twobox};
use twobox_core::Live;

use crate::admin::Tokens;
use crate::config::Config;

/// A running node, as its API sees it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Its database: both boxes, and whatever tables its user has beside them.
    pub(crate) db: Sqlite,
    /// Enqueues under the node's name.
    pub(crate) outbox: Outbox,
    /// What it has received.
    pub(crate) inbox: Inbox,
    /// Its name.
    pub(crate) source: Source,
    /// Where it can send.
    pub(crate) destinations: Vec<Destination>,
    /// How long a message that does not say is worth delivering; replayed ones get as long again.
    pub(crate) ttl: Duration,
    /// Largest payload that may be enqueued.
    pub(crate) payload_bytes_max: usize,
}

impl Node {
    /// The node called `name` that this configuration is for.
    pub(crate) fn new(config: &Config, name: &str, db: &Sqlite, service: &Twobox) -> twobox::Result<Self> {
        Ok(Self {
            db: db.clone(),
            outbox: service.outbox(),
            inbox: service.inbox(),
            source: Source::new(name)?,
            destinations: config.destinations.keys().map(Destination::new).collect::<twobox::Result<_>>()?,
            ttl: config.outbox.ttl,
            payload_bytes_max: config.outbox.payload_max.0,
        })
    }
}

/// How the API for operators is served.
#[derive(Debug)]
pub(crate) struct AdminSettings {
    /// Where: bound already, so that its address is known and a taken one is an error at the start.
    pub(crate) listener: TcpListener,
    /// Who may do what. Replaced when the node is told to read its secrets again.
    pub(crate) tokens: Live<Tokens>,
    /// Values of the `Host` header that are accepted beside the address listened on and `localhost`.
    pub(crate) hosts: Vec<String>,
    pub(crate) limits: AdminLimits,
}

/// What the API accepts from outside (S16).
#[derive(Clone, Debug)]
pub(crate) struct AdminLimits {
    /// Connections at a time.
    pub(crate) connections_max: usize,
    /// Requests that are handled at a time.
    pub(crate) requests_max: usize,
    /// From the first byte of a request to the end of its body.
    pub(crate) request_timeout: Duration,
    /// How long stopping may take before connections are cut (S20).
    pub(crate) shutdown_timeout: Duration,
}
