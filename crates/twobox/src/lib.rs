//! Reliable messaging for Rust. Two boxes, one promise.
//!
//! A service writes a message into its **outbox** in the same database transaction as its own rows; the message
//! is delivered, whatever crashes. The receiver's **inbox** makes sure that its effect happens once, and answers
//! duplicates with the stored response. No broker needed: SQLite is embedded.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use twobox::{Signal, Sqlite, Twobox};
//!
//! #[derive(Serialize, Deserialize)]
//! struct OrderApproved { order: i64 }
//!
//! impl Signal for OrderApproved {
//!     const NAME: &'static str = "OrderApproved";
//! }
//!
//! # #[tokio::main] async fn main() -> anyhow::Result<()> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("shop.db");
//! let db = Sqlite::open(&path).await?;
//! db.migrate().await?;
//! db.transaction::<_, twobox::Error, _>(|tx| {
//!     tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)", [])?;
//!     tx.execute("CREATE TABLE invoices (order_id INTEGER)", [])
//! }).await?;
//!
//! // One side handles: effects written through `tx` happen exactly once per message.
//! let billing = Twobox::builder("billing", &db)
//!     .handle(|tx, approved: OrderApproved, _context| {
//!         tx.execute("INSERT INTO invoices VALUES (?1)", [approved.order])?;
//!         Ok("invoiced") // stored; a duplicate gets it again
//!     })
//!     .build()?;
//!
//! // The other side sends: the message exists exactly when the order does.
//! let shop = Twobox::builder("shop", &db).destination("billing", billing.in_process()).build()?;
//! let running = shop.start();
//!
//! let outbox = shop.outbox();
//! let id = db.transaction(move |tx| {
//!     tx.execute("INSERT INTO orders VALUES (7, 'approved')", [])?;
//!     outbox.enqueue(tx, &OrderApproved { order: 7 }.to("billing")?)
//! }).await?;
//!
//! # twobox_testkit::eventually("delivery", std::time::Duration::from_secs(10), async || {
//! #     db.message_status(&id).await.unwrap().filter(|message| message.status == "Sent")
//! # }).await;
//! running.shutdown().await;
//! # let invoices = db.transaction::<_, twobox::Error, _>(|tx| {
//! #     tx.query("SELECT order_id FROM invoices", [], |row| row.get::<i64>(0))
//! # }).await?;
//! # assert_eq!(invoices, [7]);
//! # Ok(()) }
//! ```
//!
//! # What is promised
//!
//! If the transaction that called `enqueue` committed, the message is delivered or shows up in the dead-letter
//! list with a reason. If a handler's effects are written through the transaction it is given, they are applied
//! exactly once per consumer, source and message id. This holds through process kill, power loss, network
//! failure, duplicate and reordered delivery.
//!
//! # What is not
//!
//! It does not hold if the database is restored from an older backup, the disk lies about having written, effects
//! leave the database, or durability is lowered by configuration. A handler may run more than once; its effects
//! in the database count once. Messages without an ordering key may arrive in any order.
//!
//! # Dead letters
//!
//! What died stays until somebody decides: [`DeadLetterStore`](ports::DeadLetterStore) lists, counts, replays and
//! purges it, [`OpsStore::outbox_message`](ports::OpsStore::outbox_message) shows one message's life attempt by attempt,
//! and [`replay::Bulk`] goes through any number of them at a pace. [`OpsStore`](ports::OpsStore) also counts, lists and
//! searches both boxes, and pauses destinations.
//!
//! ```
//! # use std::{sync::Arc, time::Duration};
//! use twobox::ports::DeadLetterStore;
//! use twobox::replay::{Bulk, OutboxLetters};
//! use twobox::{DeadLetterFilter, Endpoint, Replay, Shutdown, SystemTimer};
//!
//! # #[tokio::main] async fn main() -> anyhow::Result<()> {
//! # let directory = tempfile::tempdir()?;
//! # let db = twobox::Sqlite::open(directory.path().join("shop.db")).await?;
//! # db.migrate().await?;
//! let filter = DeadLetterFilter { endpoint: Some(Endpoint::new("OrderApproved")?), ..Default::default() };
//! println!("{} would be sent again", db.dead_letter_count(&filter, 10_000).await?);
//!
//! let letters = OutboxLetters::replay(db, filter, Replay::SameId, Duration::from_secs(24 * 3600));
//! let (_stop, shutdown) = Shutdown::new();
//! let bulk = Bulk::new(Arc::new(SystemTimer::default()));
//! let progress = bulk.run(letters, shutdown, |progress| println!("{} so far", progress.done)).await?;
//! assert!(progress.finished);
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `sqlite` | yes | the store on SQLite, and [`Twobox`] on top of it |
//! | `http` | yes | delivery between services by HTTP: [`Http`] sends, [`HttpServer`] takes |
//! | `tls` | no | `https://` for both |

#[cfg(feature = "sqlite")]
mod sqlite;

pub use twobox_core::config::Timing;
pub use twobox_core::handler::{HandlerResult, OrRefuse, Refusal};
pub use twobox_core::lifecycle::Reason;
pub use twobox_core::meters::{self, Meters};
pub use twobox_core::name::OnceKey;
pub use twobox_core::panics::withhold_messages as withhold_panic_messages;
pub use twobox_core::ports::{
    Answer, BlockedKey, Claimed, ContentHash, DeadLetter, DeadLetterFilter, DeadLetterPage, DeadWork,
    DeliveryError, Enqueued, HeadPolicy, InboxStatus, LaneStatus, Link, Listen, MessageKey, Noticed,
    OwnerToken, Purged, Replay, Replayed, SweepPlan, Swept, Transport, Unfinished, WorkFilter, WorkLease,
    WorkRecord,
};
pub use twobox_core::retry::Policy;
pub use twobox_core::{
    BoxError, Consumer, ContentType, CorrelationId, Destination, Endpoint, Error, ErrorKind, Headers,
    Message, MessageId, MessageType, NewMessage, OrderingKey, Payload, Response, Result, Source, Timestamp,
    signing, wire,
};
pub use twobox_engine::receiver::OnError;
pub use twobox_engine::relay::RelayOptions;
pub use twobox_engine::worker::{WorkContext, WorkerOptions};
pub use twobox_engine::{
    BackupPlan, BackupStatus, Backups, Shutdown, ShutdownHandle, SystemTimer, audited, audited_with,
    prometheus, replay,
};
#[cfg(feature = "http")]
pub use twobox_http::{
    Call, ClientLimits, Front, Http, HttpClient, HttpServer, Reply, ServerLimits, TurnedAway, Web, check_json,
};
#[cfg(feature = "tls")]
pub use twobox_http::{TlsIdentity, TlsRoots};

#[cfg(feature = "sqlite")]
pub use crate::sqlite::{Builder, Context, Inbox, NewWork, Outbox, Running, Signal, Twobox};
#[cfg(feature = "sqlite")]
pub use twobox_sqlite::{
    AttemptRecord, BackupFolder, BackupMade, BackupOptions, BackupProgress, Check, Existing, Finding,
    Restore, RestoreOptions, Restored, Verified, VerifyOptions, restore, verify,
};
#[cfg(feature = "sqlite")]
pub use twobox_sqlite::{
    Drive, Durability, Enqueue, Insert, MessageStatus, Once, Prefix, Row, Sqlite, SqliteBuilder,
    SqliteHandler, SqliteTx, rusqlite,
};

/// The ports, for those who bring their own store or transport, and the calls that need them in scope.
pub mod ports {
    pub use twobox_core::clock::BoxFuture;
    pub use twobox_core::ports::*;
    pub use twobox_core::{Clock, Random};
    pub use twobox_engine::Timer;
}

/// Compiles and runs the program in the README.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../../../README.md")]
struct ReadmeProgram;
