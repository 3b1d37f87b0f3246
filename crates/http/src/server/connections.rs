//! The connections of a server: how many there are, what each is doing, and for how long.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;
use twobox_core::meters::Meters;
use twobox_core::mutant;

use super::ServerLimits;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing was ever received on it.
    New,
    /// It is silent between two requests.
    Idle,
    /// Part of a request's head has arrived.
    Head,
    /// A request's body is read; that has time-outs of its own.
    Body,
    /// A request waits for its turn or is handled; that has time-outs of its own, too.
    Busy,
    /// An answer is being written.
    Answering,
    /// It has made room for another, and is about to be cut.
    Displaced,
}

/// All connections of a server.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: Mutex<Open>,
    emptied: Notify,
    meters: Arc<Meters>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_id: HashMap<u64, Arc<Connection>>,
    by_peer: HashMap<IpAddr, usize>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    peer: IpAddr,
    phase: Mutex<(Phase, Instant)>,
    /// Whether it has ever sent something that was taken.
    proved: AtomicBool,
    /// Told when the connection is to be cut.
    pub(super) cut: Notify,
}

/// A place among the connections, given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    id: u64,
    of: Arc<Connections>,
    pub(super) connection: Arc<Connection>,
}

impl Connections {
    pub(super) fn new(meters: Arc<Meters>) -> Self {
        Self { meters, ..Self::default() }
    }

    /// A place for a newcomer. When there is no room, the connection that matters least makes room; `None` if all are
    /// at work.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr, limits: &ServerLimits) -> Option<Place> {
        let (peer, mut open) = (network(peer), self.lock());
        if open.by_peer.get(&peer).copied().unwrap_or(0) >= limits.peer_connections_max {
            open.make_room(Some(peer))?;
            self.meters.http.displaced.one();
        } else if open.by_id.len() >= limits.connections_max {
            open.make_room(None)?;
            self.meters.http.displaced.one();
        }
        let connection = Arc::new(Connection::new(peer));
        let id = open.next;
        open.next += 1;
        open.by_id.insert(id, Arc::clone(&connection));
        *open.by_peer.entry(peer).or_default() += 1;
        self.meters.http.connections.set_count(open.by_id.len());
        Some(Place { id, of: Arc::clone(self), connection })
    }

    /// Cuts connections that have been in their phase for too long.
    pub(super) fn cut_overdue(&self, limits: &ServerLimits) {
        let now = Instant::now();
        for connection in self.lock().by_id.values() {
            let (phase, since) = connection.phase();
            let allowed = match phase {
                Phase::New | Phase::Head => limits.head_timeout,
                Phase::Idle => limits.idle_timeout,
                Phase::Answering => limits.answer_timeout,
                Phase::Body | Phase::Busy | Phase::Displaced => Duration::MAX,
            };
            if now.saturating_duration_since(since) > allowed {
                self.meters.http.overdue.one();
                let peer = connection.peer.to_string();
                tracing::debug!(peer, ?phase, "connection cut: it took too long");
                connection.cut.notify_one();
            }
        }
    }

    /// Cuts the connection that matters least, because there are too many files open.
    pub(super) fn make_room(&self) {
        if self.lock().make_room(None).is_some() {
            self.meters.http.displaced.one();
        }
    }

    /// Cuts connections on which nothing has arrived yet: there is nothing to finish.
    pub(super) fn cut_new(&self) {
        let open = self.lock();
        let new = open.by_id.values().filter(|connection| connection.phase().0 == Phase::New);
        new.for_each(|connection| connection.cut.notify_one());
    }

    /// Cuts every connection that is left.
    pub(super) fn cut_all(&self) {
        self.lock().by_id.values().for_each(|connection| connection.cut.notify_one());
    }

    /// Completes when there is no connection left.
    pub(super) async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.lock().by_id.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Cuts the connection that matters least, of one peer or of all. It leaves the books at once, so that the newcomer
    /// has its place.
    fn make_room(&mut self, peer: Option<IpAddr>) -> Option<()> {
        loop {
            let id = self.least(peer)?;
            // It may have begun to work since it was looked at. Then it stays, and another one goes.
            if self.by_id.get(&id)?.displace() {
                return self.remove(id).map(drop);
            }
        }
    }

    /// The one that has been waited for longest, strangers first: otherwise whoever opens many connections would
    /// displace those that work. `None` if all are at work.
    fn least(&self, peer: Option<IpAddr>) -> Option<u64> {
        let candidates = self.by_id.iter().filter_map(|(id, connection)| {
            let (phase, since) = connection.phase();
            let is_meant = peer.is_none_or(|peer| peer == connection.peer);
            (is_meant && connection.makes_room(phase)).then_some((connection.is_proved(), since, *id))
        });
        candidates.min().map(|(_, _, id)| id)
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Connection>> {
        let connection = self.by_id.remove(&id)?;
        if let Some(count) = self.by_peer.get_mut(&connection.peer) {
            *count -= 1;
            if *count == 0 {
                self.by_peer.remove(&connection.peer);
            }
        }
        Some(connection)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.of.lock();
        open.remove(self.id);
        let is_empty = open.by_id.is_empty();
        self.of.meters.http.connections.set_count(open.by_id.len());
        drop(open);
        if is_empty {
            self.of.emptied.notify_waiters();
        }
    }
}

impl Connection {
    pub(super) fn new(peer: IpAddr) -> Self {
        let phase = Mutex::new((Phase::New, Instant::now()));
        Self { peer, phase, proved: AtomicBool::new(false), cut: Notify::new() }
    }

    pub(super) fn phase(&self) -> (Phase, Instant) {
        *self.lock()
    }

    /// What it does now. Nothing leads back from having made room for another.
    pub(super) fn enter(&self, phase: Phase) {
        let mut now = self.lock();
        if now.0 != Phase::Displaced {
            *now = (phase, Instant::now());
        }
    }

    /// From now on it is at work, and makes room for nobody. If it has made room already this never completes: it is
    /// about to be cut, and must not have an effect before.
    pub(super) async fn begin(&self) {
        self.enter(Phase::Busy);
        if self.phase().0 == Phase::Displaced {
            std::future::pending::<()>().await;
        }
    }

    /// Is cut to make room for another, if it is not at work.
    pub(super) fn displace(&self) -> bool {
        let mut now = self.lock();
        let makes_room = self.makes_room(now.0);
        if makes_room {
            *now = (Phase::Displaced, Instant::now());
            let peer = self.peer.to_string();
            tracing::debug!(peer, "connection cut: it makes room for another");
            self.cut.notify_one();
        }
        makes_room
    }

    /// Whether it would make room for another in this phase. Anybody can write a good head, so a stranger's body counts
    /// no more than silence: otherwise strangers could take all places with bodies that never end, or by not reading why
    /// they are refused. Whoever is answered otherwise is no stranger any more.
    fn makes_room(&self, phase: Phase) -> bool {
        match phase {
            Phase::New | Phase::Idle | Phase::Head => true,
            Phase::Body => !self.is_proved() && !mutant!(HalfBodiesStay),
            Phase::Answering => !self.is_proved() && !mutant!(RefusalsStay),
            Phase::Busy | Phase::Displaced => false,
        }
    }

    /// Something has arrived. What is new has had its time running since it connected.
    fn arrived(&self) {
        let mut phase = self.lock();
        match *phase {
            (Phase::New, since) => *phase = (Phase::Head, since),
            (Phase::Idle, _) => *phase = (Phase::Head, Instant::now()),
            _ => {}
        }
    }

    /// It has sent something that was taken.
    pub(super) fn prove(&self) {
        self.proved.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_proved(&self) -> bool {
        self.proved.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, (Phase, Instant)> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What counts as one address: whoever has an IPv6 address has as many as there are in its network.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

/// A stream that tells its connection when something arrives and when an answer is out.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    connection: Arc<Connection>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self { stream, connection }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            this.connection.arrived();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        // Hyper flushes the stream only when all it had to write is written.
        if flushed.is_ready() && this.connection.phase().0 == Phase::Answering {
            this.connection.enter(Phase::Idle);
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s16_an_ipv6_network_counts_as_one_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:127.0.0.1"), of("127.0.0.1"));
        assert_ne!(of("127.0.0.1"), of("127.0.0.2"));
    }

    #[tokio::test]
    async fn s16_what_has_made_room_does_not_begin_to_work_and_what_works_makes_no_room() {
        let connection = || {
            let connection = Connection::new(IpAddr::V6(Ipv6Addr::LOCALHOST));
            connection.enter(Phase::Body);
            connection
        };
        let displaced = connection();
        assert!(displaced.displace(), "a stranger's body counts no more than silence");
        displaced.enter(Phase::Answering);
        assert_eq!(displaced.phase().0, Phase::Displaced);
        let begun = tokio::time::timeout(Duration::from_millis(1), displaced.begin()).await;
        assert!(begun.is_err(), "what is about to be cut has no effect");
        let at_work = connection();
        at_work.begin().await;
        assert!(!at_work.displace());
        let proved = connection();
        proved.prove();
        assert!(!proved.displace());
    }
}
