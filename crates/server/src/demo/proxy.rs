//! The network between the two, which cuts connections and loses answers when told to.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::order::ORDER;
use crate::Result;

/// Carries bytes from shop to billing and back.
#[derive(Clone)]
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    billing: Mutex<Option<SocketAddr>>,
    in_flight: AtomicU64,
    /// Requests with orders that are to be cut, and answers to such that are to be lost.
    to_cut: AtomicU64,
    to_drop: AtomicU64,
    cut: AtomicU64,
    dropped: AtomicU64,
    changed: Notify,
}

impl Proxy {
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let proxy = Self { address: listener.local_addr()?, state: Arc::default() };
        let state = Arc::clone(&proxy.state);
        tokio::spawn(async move {
            while let Ok((shop, _)) = listener.accept().await {
                tokio::spawn(carry(shop, Arc::clone(&state)));
            }
        });
        Ok(proxy)
    }

    /// Where billing listens now.
    pub(super) fn lead_to(&self, billing: SocketAddr) {
        *self.state.billing.lock().unwrap_or_else(PoisonError::into_inner) = Some(billing);
    }

    /// Cuts the next request with orders in two.
    pub(super) fn cut_one(&self) {
        self.state.to_cut.fetch_add(1, Ordering::Relaxed);
    }

    /// Loses the next answer to such a request.
    pub(super) fn drop_one(&self) {
        self.state.to_drop.fetch_add(1, Ordering::Relaxed);
    }

    /// Breaks nothing any more.
    pub(super) fn heal(&self) {
        self.state.to_cut.store(0, Ordering::Relaxed);
        self.state.to_drop.store(0, Ordering::Relaxed);
    }

    /// Requests with orders that have not been answered yet.
    pub(super) fn in_flight(&self) -> u64 {
        self.state.in_flight.load(Ordering::Relaxed)
    }

    /// Waits until a request is in flight, but not for longer than `patience`.
    pub(super) async fn until_in_flight(&self, patience: Duration) {
        self.until(patience, || self.in_flight() > 0).await;
    }

    /// Waits until everything is broken that is to be, but not for longer than `patience`.
    pub(super) async fn until_broken(&self, patience: Duration) {
        let left = || [&self.state.to_cut, &self.state.to_drop].map(|left| left.load(Ordering::Relaxed));
        self.until(patience, || left() == [0, 0]).await;
    }

    async fn until(&self, patience: Duration, is_so: impl Fn() -> bool) {
        let waiting = async {
            loop {
                let changed = self.state.changed.notified();
                if is_so() {
                    return;
                }
                changed.await;
            }
        };
        let _: Result<(), _> = tokio::time::timeout(patience, waiting).await;
    }

    /// Connections cut and answers lost so far.
    pub(super) fn broken(&self) -> (u64, u64) {
        (self.state.cut.load(Ordering::Relaxed), self.state.dropped.load(Ordering::Relaxed))
    }
}

impl State {
    /// Takes one off a counter of things to do and puts it on that of things done, if there is one.
    fn take(&self, to_do: &AtomicU64, done: &AtomicU64) -> bool {
        let one_less = |left: u64| left.checked_sub(1);
        let taken = to_do.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok();
        if taken {
            done.fetch_add(1, Ordering::Relaxed);
            self.changed.notify_waiters();
        }
        taken
    }

    fn cuts(&self) -> bool {
        self.take(&self.to_cut, &self.cut)
    }

    fn drops(&self) -> bool {
        self.take(&self.to_drop, &self.dropped)
    }
}

/// A request on its way.
struct InFlight(Arc<State>);

impl InFlight {
    fn new(state: &Arc<State>) -> Self {
        state.in_flight.fetch_add(1, Ordering::Relaxed);
        state.changed.notify_waiters();
        Self(Arc::clone(state))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether these are bytes of a request with orders: a probe has none, and to hit one proves nothing.
fn has_orders(bytes: &[u8]) -> bool {
    bytes.windows(ORDER.len()).any(|window| window == ORDER.as_bytes())
}

/// Carries one connection. Whatever breaks it closes both ends.
async fn carry(mut shop: TcpStream, state: Arc<State>) {
    let address = *state.billing.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(address) = address else { return };
    let Ok(mut billing) = TcpStream::connect(address).await else { return };
    let _: [std::io::Result<()>; 2] = [shop.set_nodelay(true), billing.set_nodelay(true)];
    let (mut request, mut answer) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut in_flight = None;
    loop {
        let carried = tokio::select! {
            read = shop.read(&mut request) => match read {
                Ok(count) if has_orders(&request[..count]) && state.cuts() => {
                    let _: std::io::Result<()> = billing.write_all(&request[..count / 2]).await;
                    return;
                }
                Ok(count) if count > 0 => {
                    if has_orders(&request[..count]) {
                        in_flight.get_or_insert_with(|| InFlight::new(&state));
                    }
                    billing.write_all(&request[..count]).await
                }
                _ => return,
            },
            read = billing.read(&mut answer) => match read {
                Ok(count) if count > 0 && in_flight.is_some() && state.drops() => return,
                Ok(count) if count > 0 => {
                    let carried = shop.write_all(&answer[..count]).await;
                    in_flight = None;
                    carried
                }
                _ => return,
            },
        };
        if carried.is_err() {
            return;
        }
    }
}
