//! A sender and a receiver, each with a database of its own, and a real socket between them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinHandle;
use twobox_core::ports::{LaneStatus, LaneStore, Link, Listen, Receive, Transport};
use twobox_core::signing::{Key, KeyId, Keyring, Keyrings, SecretKey};
use twobox_core::system::SystemRandom;
use twobox_core::{
    Consumer, Destination, Endpoint, HandlerResult, Message, MessageId, NewMessage, Response, Source, Stamp,
};
use twobox_engine::receiver::{Receiver, Route};
use twobox_engine::relay::{RelayBuilder, RelayOptions};
use twobox_engine::{Relay, Shutdown, ShutdownHandle, SystemTimer};
use twobox_http::HttpServer;
use twobox_sqlite::{Sqlite, SqliteBuilder, SqliteHandler, SqliteTx};
use twobox_testkit::eventually;

/// Longer than anything takes that works.
pub(crate) const EVER: Duration = Duration::from_secs(60);

pub(crate) fn source(name: &str) -> Source {
    Source::new(name).unwrap()
}

pub(crate) fn destination(name: &str) -> Destination {
    Destination::new(name).unwrap()
}

pub(crate) fn key(id: &str, byte: u8) -> Key {
    Key::new(KeyId::new(id).unwrap(), SecretKey::new(&[byte; 32]).unwrap())
}

/// The keys shop signs with.
pub(crate) fn keyring() -> Keyring {
    Keyring::new([key("shop-1", 1)]).unwrap()
}

/// The keys billing knows.
pub(crate) fn keyrings() -> Keyrings {
    let mut keyrings = Keyrings::new();
    keyrings.insert(&source("shop"), keyring()).unwrap();
    keyrings
}

pub(crate) fn link() -> Arc<Link> {
    Arc::new(Link { source: source("shop"), destination: destination("billing"), outbox: "outbox-1".into() })
}

/// A message from shop to billing, dated now.
pub(crate) fn message(id: &str) -> Arc<Message> {
    let new = NewMessage::json("billing", "order", &id).unwrap();
    let new = new.id(MessageId::new(id).unwrap());
    let clock = Arc::new(twobox_core::system::SystemClock::default());
    let stamp = Stamp::new(source("shop"), clock, Arc::new(SystemRandom::default()));
    Arc::new(stamp.message(&new).unwrap())
}

/// A database in a folder of its own.
pub(crate) struct Store {
    pub(crate) db: Sqlite,
    _folder: TempDir,
}

impl Store {
    pub(crate) async fn new() -> Self {
        Self::open(Sqlite::builder()).await
    }

    pub(crate) async fn open(builder: SqliteBuilder) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let db = builder.open(folder.path().join("box.db")).await.unwrap();
        db.migrate().await.unwrap();
        Self { db, _folder: folder }
    }

    /// With the table that billing writes its effects into.
    pub(crate) async fn with_effects(self) -> Self {
        self.db
            .transaction::<_, twobox_core::Error, _>(|tx| tx.execute("CREATE TABLE effects (id TEXT)", []))
            .await
            .unwrap();
        self
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        let rows = self
            .db
            .transaction::<_, twobox_core::Error, _>(move |tx| tx.query(sql, [], |row| row.get::<i64>(0)));
        rows.await.unwrap()[0]
    }

    /// Enqueues `count` messages `prefix0`, `prefix1`, … in one transaction.
    pub(crate) async fn enqueue(&self, to: &str, prefix: &str, count: usize) {
        let stamp = Stamp::new(source("shop"), self.db.clock(), self.db.random());
        let messages: Vec<Message> = (0..count)
            .map(|n| {
                let id = format!("{prefix}{n}");
                let new = NewMessage::json(to, "order", &id).unwrap();
                stamp.message(&new.id(MessageId::new(id).unwrap())).unwrap()
            })
            .collect();
        let db = self.db.clone();
        let append =
            self.db.transaction(move |tx| messages.iter().try_for_each(|message| db.append(tx, message)));
        append.await.unwrap();
    }
}

/// A service that writes one effect per message.
pub(crate) struct Billing {
    pub(crate) store: Store,
    pub(crate) address: SocketAddr,
    stop: ShutdownHandle,
    task: JoinHandle<()>,
}

impl Billing {
    /// A receiver that takes signed messages.
    pub(crate) async fn signed() -> Self {
        Self::start(HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap()).await
    }

    pub(crate) async fn unsigned() -> Self {
        Self::start(HttpServer::unsigned("127.0.0.1:0").await.unwrap()).await
    }

    pub(crate) async fn start(server: HttpServer) -> Self {
        Self::handling(server, |_, _| Ok(Response::json(&"invoiced").unwrap())).await
    }

    /// A receiver whose handler writes an effect, then does what it is told.
    pub(crate) async fn handling(
        server: HttpServer,
        then: impl Fn(&mut SqliteTx<'_>, &Message) -> HandlerResult<Response> + Send + Sync + 'static,
    ) -> Self {
        Self::resumed(&server, Store::new().await.with_effects().await, then)
    }

    /// The same on a database that is there already.
    pub(crate) fn resumed(
        server: &HttpServer,
        store: Store,
        then: impl Fn(&mut SqliteTx<'_>, &Message) -> HandlerResult<Response> + Send + Sync + 'static,
    ) -> Self {
        let handler = SqliteHandler::new(move |tx, message| {
            tx.execute("INSERT INTO effects VALUES (?1)", [message.id.as_str()])?;
            then(tx, message)
        });
        let timer = Arc::new(SystemTimer::default());
        let receiver = Receiver::builder(store.db.clone(), Consumer::new("billing").unwrap(), timer)
            .route(Endpoint::new("order").unwrap(), Route::Handler(handler))
            .unwrap()
            .build();
        Self::serving(server, store, Arc::new(receiver))
    }

    /// A server in front of any receiver.
    pub(crate) fn serving(server: &HttpServer, store: Store, receiver: Arc<dyn Receive>) -> Self {
        server.check().unwrap();
        let address = server.local_addr();
        let (stop, mut shutdown) = Shutdown::new();
        let stopped = Box::pin(async move { shutdown.requested().await });
        let task = tokio::spawn(server.serve(destination("billing"), receiver, stopped));
        Self { store, address, stop, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) async fn effects(&self) -> i64 {
        self.store.count("SELECT count(*) FROM effects").await
    }

    pub(crate) async fn stop(self) -> Store {
        self.stop.request();
        self.task.await.unwrap();
        self.store
    }
}

fn relay(store: &Store, transports: &[(&str, Arc<dyn Transport>)]) -> RelayBuilder<Sqlite> {
    let (timer, random) = (Arc::new(SystemTimer::default()), Arc::new(SystemRandom::default()));
    let relay = Relay::builder(store.db.clone(), source("shop"), timer, random);
    transports.iter().fold(relay, |relay, (name, transport)| {
        relay.destination(destination(name), Arc::clone(transport)).unwrap()
    })
}

/// A service that sends.
pub(crate) struct Shop {
    pub(crate) store: Store,
    stop: ShutdownHandle,
    task: JoinHandle<()>,
}

impl Shop {
    pub(crate) async fn start(transports: &[(&str, Arc<dyn Transport>)]) -> Self {
        Self::with(Store::new().await, transports, RelayOptions::default())
    }

    pub(crate) fn with(
        store: Store,
        transports: &[(&str, Arc<dyn Transport>)],
        options: RelayOptions,
    ) -> Self {
        let relay = relay(&store, transports).options(options);
        Self::running(store, relay)
    }

    /// Whatever has no transport of its own goes through `default`.
    pub(crate) fn by_default(
        store: Store,
        transports: &[(&str, Arc<dyn Transport>)],
        default: Arc<dyn Transport>,
    ) -> Self {
        let relay = relay(&store, transports).default_transport(default);
        Self::running(store, relay)
    }

    fn running(store: Store, relay: RelayBuilder<Sqlite>) -> Self {
        let (stop, shutdown) = Shutdown::new();
        let task = tokio::spawn(relay.build().unwrap().run(shutdown));
        Self { store, stop, task }
    }

    /// Enqueues as [`Store::enqueue`] does.
    pub(crate) async fn enqueue(&self, to: &str, prefix: &str, count: usize) {
        self.store.enqueue(to, prefix, count).await;
    }

    pub(crate) async fn lane(&self, to: &str) -> Option<LaneStatus> {
        let lanes = self.store.db.lanes().await.unwrap();
        lanes.into_iter().find(|lane| lane.destination.as_str() == to)
    }

    pub(crate) async fn until_sent(&self, to: &str, count: u64) {
        let what = format!("{count} messages to {to} are sent");
        eventually(&what, EVER, async || self.lane(to).await.filter(|lane| lane.sent >= count)).await;
    }

    /// Waits until the lane is held, and says why.
    pub(crate) async fn until_held(&self, to: &str) -> String {
        eventually("the lane is held", EVER, async || self.lane(to).await?.held_error).await
    }

    pub(crate) async fn stop(self) -> Store {
        self.stop.request();
        self.task.await.unwrap();
        self.store
    }
}
