//! The transport: carries batches to a receiver.

mod connect;
mod exchange;
mod limits;
mod plain;
mod stream;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use twobox_core::clock::BoxFuture;
use twobox_core::ports::{Answer, DeliveryError, Inboxes, Link, Transport};
use twobox_core::signing::Keyring;
use twobox_core::system::SystemClock;
use twobox_core::{Clock, Destination, Error, ErrorKind, Live, Message, Result};

pub use self::limits::ClientLimits;
pub use self::plain::{Call, HttpClient, Reply};

use self::connect::Connector;
use crate::RECEIVE_BATCH;
use crate::url::BaseUrl;

/// Carries messages to a receiver by HTTP. Cheap to clone.
///
/// The URL may contain `{destination}`, which stands for the destination's name: as a default transport it then
/// serves any number of them. They then share its keys, and whoever holds a key can sign in your name: give
/// destinations that do not trust each other a transport each.
#[derive(Clone)]
pub struct Http {
    url: BaseUrl,
    keyring: Option<Live<Keyring>>,
    limits: ClientLimits,
    clock: Arc<dyn Clock>,
    connector: Connector,
    client: Client<Connector, Full<Bytes>>,
    inboxes: Inboxes,
}

impl Http {
    /// A transport whose requests are signed with the keys shared with the receiver, and which takes only signed
    /// answers.
    ///
    /// # Errors
    /// [`Misconfigured`](twobox_core::ErrorKind::Misconfigured) if the URL cannot be used.
    pub fn signed(url: &str, keyring: Keyring) -> Result<Self> {
        Self::new(url, Some(keyring))
    }

    /// A transport without signatures. Whoever can reach the receiver can send in any name, and whoever can answer
    /// in its place can lose messages: only for hosts and networks that are yours alone.
    ///
    /// # Errors
    /// As [`signed`](Self::signed).
    pub fn unsigned(url: &str) -> Result<Self> {
        Self::new(url, None)
    }

    fn new(url: &str, keyring: Option<Keyring>) -> Result<Self> {
        let url = BaseUrl::new(url)?;
        let limits = ClientLimits::default();
        let connector = Connector::new(url.is_https(), &limits);
        let client = client(&connector, &limits);
        let (keyring, clock) = (keyring.map(Live::new), Arc::new(SystemClock::default()));
        Ok(Self { url, keyring, limits, clock, connector, client, inboxes: Inboxes::default() })
    }

    /// Other limits than the default ones. They are checked when a service is built with this transport.
    #[must_use]
    pub fn limits(mut self, limits: ClientLimits) -> Self {
        self.connector.limit(&limits);
        self.client = client(&self.connector, &limits);
        self.limits = limits;
        self
    }

    /// Exchanges the keys of this transport and its clones while they are in use. A request that is on its way ends
    /// with the key it was signed with. Give the receiver a new key first.
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured) if the transport is unsigned.
    pub fn replace_keys(&self, keyring: Keyring) -> Result<()> {
        let unsigned = "the transport is unsigned, so it has no keys to replace";
        self.keyring
            .as_ref()
            .map(|live| live.set(keyring))
            .ok_or_else(|| Error::new(ErrorKind::Misconfigured, unsigned))
    }

    /// Where the time in signatures comes from. Default: the machine.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Where batches for `destination` are sent.
    ///
    /// # Errors
    /// [`Invalid`](twobox_core::ErrorKind::Invalid) if the name has its place in the URL and cannot stand there.
    pub fn address(&self, destination: &Destination) -> Result<String> {
        self.url.route(destination, RECEIVE_BATCH).map(|uri| uri.to_string())
    }

    /// Whom to believe that the receiver is who it says. Default: the authorities this machine trusts.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn roots(mut self, roots: &crate::TlsRoots) -> Self {
        self.connector.tls = Some(roots.connector());
        self.client = client(&self.connector, &self.limits);
        self
    }
}

fn client(connector: &Connector, limits: &ClientLimits) -> Client<Connector, Full<Bytes>> {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(limits.idle_timeout)
        .pool_max_idle_per_host(limits.idle_max)
        .build(connector.clone())
}

impl Transport for Http {
    fn deliver(
        &self,
        link: &Arc<Link>,
        batch: Vec<Arc<Message>>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>> {
        let (this, link) = (self.clone(), Arc::clone(link));
        Box::pin(async move { this.exchange(&link, &batch, timeout).await })
    }

    fn inbox(&self, link: &Link) -> Option<Arc<str>> {
        self.inboxes.of(link)
    }

    fn check(&self) -> Result<()> {
        self.limits.check()
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("url", &self.url)
            .field("signed", &self.keyring.is_some())
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
