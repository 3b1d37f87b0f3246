//! A node with something of everything.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use twobox::ports::{BoxFuture, OwnerToken, Transport};
use twobox::{
    Answer, DeliveryError, Destination, Link, Message, MessageId, NewMessage, NewWork, OrderingKey, Running,
    Shutdown, ShutdownHandle, Source, Sqlite, Twobox,
};
use twobox_core::Live;
use twobox_core::ports::OpsStore as _;
use twobox_testkit::eventually;

use super::ask::{Ask, EVER, Reply};
use crate::admin::{self, Scope, Token, Tokens};
use crate::node::{AdminLimits, AdminSettings, Node};

pub(super) const READ: &str = "read-token-0123456789";
pub(super) const WRITE: &str = "write-token-0123456789";
pub(super) const SEND: &str = "send-token-0123456789";
/// Stands in every payload, and may stand in no answer.
pub(super) const CANARY: &str = "hunter2-canary";

const PAYLOAD_BYTES_MAX: usize = 64 << 10;

pub(super) fn tokens() -> Tokens {
    [
        Token::new("viewer", READ.as_bytes(), [Scope::Read]),
        Token::new("operator", WRITE.as_bytes(), [Scope::Write]),
        Token::new("shop", SEND.as_bytes(), [Scope::Send]),
    ]
    .into_iter()
    .collect()
}

/// Rejects what its endpoint says is to be rejected, and takes the rest.
struct Rejecting;

impl Transport for Rejecting {
    fn deliver(
        &self,
        _: &Arc<Link>,
        batch: Vec<Arc<Message>>,
        _: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>> {
        let mut failed = HashSet::new();
        let answer = move |message: Arc<Message>| match message.endpoint.as_str() {
            _ if failed.contains(&message.ordering_key) => Answer::Held,
            "Reject" => {
                failed.extend(message.ordering_key.is_some().then(|| message.ordering_key.clone()));
                Answer::Rejected { error: "no such customer".into() }
            }
            "Later" => Answer::Retry { after: None, error: "not now".into() },
            _ => Answer::Done(None),
        };
        Box::pin(async move { Ok(batch.into_iter().map(answer).collect()) })
    }
}

/// A node whose API is served.
pub(super) struct World {
    pub(super) db: Sqlite,
    pub(super) service: Twobox,
    pub(super) address: SocketAddr,
    pub(super) tokens: Live<Tokens>,
    stop: ShutdownHandle,
    task: JoinHandle<()>,
    _folder: TempDir,
}

impl World {
    /// An empty one whose relay does not run.
    pub(super) async fn empty() -> Self {
        Self::with(AdminLimits {
            connections_max: 64,
            requests_max: 16,
            request_timeout: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(2),
        })
        .await
    }

    pub(super) async fn with(limits: AdminLimits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let db = Sqlite::open(folder.path().join("node.db")).await.unwrap();
        db.migrate().await.unwrap();
        let service = Twobox::builder("shop", &db)
            .destination("billing", Rejecting)
            .payload_bytes_max(PAYLOAD_BYTES_MAX)
            .build()
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let node = Node {
            db: db.clone(),
            outbox: service.outbox(),
            inbox: service.inbox(),
            source: Source::new("shop").unwrap(),
            destinations: vec![Destination::new("billing").unwrap()],
            ttl: Duration::from_secs(3600),
            payload_bytes_max: PAYLOAD_BYTES_MAX,
        };
        let tokens = Live::new(tokens());
        let hosts = vec!["node.example".into()];
        let settings = AdminSettings { listener, tokens: tokens.clone(), hosts, limits };
        let (stop, mut shutdown) = Shutdown::new();
        let stopped = Box::pin(async move { shutdown.requested().await });
        let task = tokio::spawn(async move { admin::serve(node, settings, stopped).await.unwrap() });
        Self { db, service, address, tokens, stop, task, _folder: folder }
    }

    /// With three dead letters in either box, a blocked key in each, a message that is retried, and some that are done.
    pub(super) async fn full() -> Self {
        let world = Self::empty().await;
        let running = world.start();
        world.enqueue("ok", "Take", 3).await;
        world.enqueue("dead", "Reject", 2).await;
        world.enqueue("later", "Later", 1).await;
        world.enqueue_keyed("key-head", "Reject", "k1").await;
        world.enqueue_keyed("key-next", "Take", "k1").await;
        eventually("the outbox has settled", EVER, async || {
            let stats = world.db.outbox_stats(10_000).await.unwrap();
            (stats.waiting.dead == 3 && stats.sent == 3 && stats.waiting.open() == 2).then_some(())
        })
        .await;
        running.shutdown().await;
        world.fill_inbox().await;
        world
    }

    pub(super) fn start(&self) -> Running {
        self.service.start()
    }

    pub(super) async fn enqueue(&self, prefix: &str, endpoint: &str, count: usize) {
        let ids = (0..count).map(|n| format!("{prefix}-{n}")).collect();
        self.append(ids, endpoint, None).await;
    }

    async fn enqueue_keyed(&self, id: &str, endpoint: &str, key: &str) {
        self.append(vec![id.into()], endpoint, Some(OrderingKey::new(key).unwrap())).await;
    }

    async fn append(&self, ids: Vec<String>, endpoint: &str, key: Option<OrderingKey>) {
        let (outbox, endpoint) = (self.service.outbox(), endpoint.to_owned());
        let appending = self.db.transaction::<_, twobox::Error, _>(move |tx| {
            ids.iter().try_for_each(|id| {
                let mut message = NewMessage::json("billing", &endpoint, &CANARY)?.id(MessageId::new(id)?);
                let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
                message.headers.insert("traceparent", trace)?;
                message.headers.insert("x-secret", CANARY)?;
                message.ordering_key = key.clone();
                outbox.enqueue(tx, &message).map(drop)
            })
        });
        appending.await.unwrap();
    }

    async fn fill_inbox(&self) {
        let inbox = self.service.inbox();
        for (id, key) in
            [("in-dead-0", None), ("in-dead-1", None), ("in-head", Some("k2")), ("in-next", Some("k2"))]
        {
            let mut work = NewWork::new("Order", "warehouse", id, CANARY).unwrap();
            if let Some(key) = key {
                work = work.ordering_key(OrderingKey::new(key).unwrap());
            }
            inbox.enqueue(&work).await.unwrap();
        }
        let owner = OwnerToken::mint(&*self.db.random());
        let claimed = inbox.claim(owner, Duration::from_secs(60), 10).await.unwrap();
        let leases: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease).collect();
        assert_eq!(inbox.fail(owner, &leases, "cannot be handled").await.unwrap(), 3);
    }

    pub(super) async fn ask(&self, ask: Ask) -> Reply {
        ask.send(self.address).await
    }

    pub(super) async fn read(&self, target: &str) -> Reply {
        self.ask(Ask::get(target).token(READ)).await
    }

    pub(super) async fn write(&self, target: &str, body: &serde_json::Value) -> Reply {
        self.ask(Ask::post(target, body).token(WRITE)).await
    }

    pub(super) async fn stop(self) {
        self.stop.request();
        self.task.await.unwrap();
    }
}
