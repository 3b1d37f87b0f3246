//! The network between shop and billing: an address that stays the same while billing comes and goes, and a
//! connection that breaks when the test says so.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::process::EVER;

/// What the network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Everything gets through.
    Fair,
    /// The connection is cut when half of a request is through.
    CutRequests,
    /// Requests get through; the connection is cut when the answer comes.
    LoseAnswers,
    /// Requests get through; answers do not, for as long as shop waits for them.
    HoldAnswers,
}

/// The network.
pub(crate) struct Network {
    pub(crate) address: SocketAddr,
    /// Bound and never listening: it keeps the port while connections are refused.
    _port: TcpSocket,
    state: Arc<State>,
    accepting: Option<JoinHandle<()>>,
}

struct State {
    weather: Mutex<Weather>,
    billing: Mutex<Option<SocketAddr>>,
    /// How often something did not get through.
    damage: watch::Sender<usize>,
}

impl Network {
    pub(crate) fn new() -> Self {
        let port = socket("127.0.0.1:0".parse().unwrap());
        let state = State {
            weather: Mutex::new(Weather::Fair),
            billing: Mutex::new(None),
            damage: watch::Sender::new(0),
        };
        let mut network = Self {
            address: port.local_addr().unwrap(),
            _port: port,
            state: Arc::new(state),
            accepting: None,
        };
        network.accept();
        network
    }

    /// Where billing is from now on.
    pub(crate) fn lead_to(&self, billing: SocketAddr) {
        *self.state.billing.lock().unwrap() = Some(billing);
    }

    pub(crate) fn set(&self, weather: Weather) {
        *self.state.weather.lock().unwrap() = weather;
    }

    /// Waits until something did not get through.
    pub(crate) async fn damaged(&self) {
        let mut damage = self.state.damage.subscribe();
        timeout(EVER, damage.wait_for(|times| *times > 0)).await.expect("nothing was sent").unwrap();
    }

    /// Cuts every connection and refuses new ones.
    pub(crate) async fn refuse(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            // Only now is the socket closed. That it was aborted is no news.
            let _: Result<(), _> = accepting.await;
        }
    }

    /// Takes connections again.
    pub(crate) fn accept(&mut self) {
        let listener = socket(self.address).listen(64).unwrap();
        self.accepting = Some(tokio::spawn(accept(listener, Arc::clone(&self.state))));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.accepting.iter().for_each(JoinHandle::abort);
    }
}

/// A socket that shares its port with others of ours.
fn socket(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseport(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

/// Dropping this drops all connections with it.
async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((shop, _)) = listener.accept().await {
        connections.spawn(connect(shop, Arc::clone(&state)));
    }
}

/// A connection ends as soon as one side does, and at once if nobody is there.
async fn connect(shop: TcpStream, state: Arc<State>) {
    let billing = *state.billing.lock().unwrap();
    let Some(billing) = billing else { return };
    if let Ok(billing) = TcpStream::connect(billing).await {
        let _: std::io::Result<()> = carry(shop, billing, &state).await;
    }
}

async fn carry(mut shop: TcpStream, mut billing: TcpStream, state: &State) -> std::io::Result<()> {
    let (mut from_shop, mut to_shop) = shop.split();
    let (mut from_billing, mut to_billing) = billing.split();
    let (mut request, mut answer) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        tokio::select! {
            read = from_shop.read(&mut request) => match (read?, state.weather()) {
                (0, _) => return Ok(()),
                (count, Weather::CutRequests) => {
                    to_billing.write_all(&request[..count / 2]).await?;
                    state.note_damage();
                    return Ok(());
                }
                (count, _) => to_billing.write_all(&request[..count]).await?,
            },
            read = from_billing.read(&mut answer) => match (read?, state.weather()) {
                (0, _) => return Ok(()),
                (_, Weather::LoseAnswers) => {
                    state.note_damage();
                    return Ok(());
                }
                (_, Weather::HoldAnswers) => {
                    state.note_damage();
                    // Until shop hangs up.
                    while from_shop.read(&mut request).await? > 0 {}
                    return Ok(());
                }
                (count, _) => to_shop.write_all(&answer[..count]).await?,
            },
        }
    }
}

impl State {
    fn weather(&self) -> Weather {
        *self.weather.lock().unwrap()
    }

    fn note_damage(&self) {
        self.damage.send_modify(|times| *times += 1);
    }
}
