//! Authors: they write rows of their own and enqueue messages with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use twobox_core::name::OnceKey;
use twobox_core::{Clock as _, Error, ErrorKind, MessageId, NewMessage, OrderingKey};
use twobox_sqlite::Once;
use twobox_testkit::history::{Event, Order};

use super::foreign;
use super::handlers::{FOLLOWED, PLAIN, QUEUED, QUEUED_SLOW, SLOW, follow_up_of};
use super::process::{Node, Process};
use super::stage::{Stage, index};
use super::tally::Kind;

pub(super) const INSERT_ROW: &str = "INSERT INTO orders (id) VALUES (?1)";

/// Whoever enqueues on one node.
pub(super) struct Author {
    stage: Arc<Stage>,
    node: Arc<Node>,
    messages: u64,
    begun: AtomicU64,
    busy: AtomicU64,
}

/// What an author was told about a transaction.
enum Told<T> {
    Committed(T),
    NotCommitted,
    /// That nobody knows, or nothing at all because the process died.
    Unknown,
}

/// A message in the making.
struct Wish {
    order: Order,
    endpoint: &'static str,
    due_in: Option<Duration>,
    ttl: Option<Duration>,
}

impl Author {
    pub(super) fn new(stage: &Arc<Stage>, node: &Arc<Node>, messages: u64) -> Arc<Self> {
        let (stage, node) = (Arc::clone(stage), Arc::clone(node));
        Arc::new(Self { stage, node, messages, begun: AtomicU64::new(0), busy: AtomicU64::new(0) })
    }

    /// Whether nothing is being enqueued.
    pub(super) fn is_idle(&self) -> bool {
        self.busy.load(Ordering::SeqCst) == 0
    }

    /// Enqueues now and then, several messages at a time, until all is well.
    pub(super) async fn work(self: Arc<Self>) {
        while !self.stage.is_healed() && self.begun.load(Ordering::SeqCst) < self.messages {
            tokio::time::sleep(self.stage.millis(100..1_500)).await;
            let Some(process) = self.node.process() else { continue };
            // Now and then so many that they travel in several requests at a time.
            let burst = if self.stage.up_to(4) == 0 { 10 } else { 3 };
            for _ in 0..=self.stage.up_to(burst) {
                let number = self.begun.fetch_add(1, Ordering::SeqCst);
                self.busy.fetch_add(1, Ordering::SeqCst);
                let (this, process) = (Arc::clone(&self), Arc::clone(&process));
                tokio::spawn(async move {
                    this.place(process, number).await;
                    this.busy.fetch_sub(1, Ordering::SeqCst);
                });
            }
        }
    }

    async fn place(&self, process: Arc<Process>, number: u64) {
        let mut wish = self.wish(number);
        if self.stage.up_to(8) == 0 {
            wish.order.once = Some(format!("o-{}", wish.order.id));
            drop(process);
            return self.place_once(wish).await;
        }
        if self.stage.up_to(6) == 0 {
            drop(process);
            return self.place_foreign(&wish).await;
        }
        self.begin(&wish);
        let id = wish.order.id.clone();
        match self.enqueue(&process, &wish).await {
            Told::Committed(()) => self.note(Event::Enqueued(id)),
            Told::NotCommitted => self.note(Event::Refused(id)),
            Told::Unknown => self.note(Event::Unknown(id)),
        }
    }

    /// Enqueues through a connection that does not sync, so nobody is told that it is committed. A little later than
    /// the others, because their commits would make it durable.
    async fn place_foreign(&self, wish: &Wish) {
        tokio::time::sleep(self.stage.millis(5..400)).await;
        let Some(process) = self.node.process() else { return };
        self.stage.count(Kind::Foreign);
        self.begin(wish);
        let id = wish.order.id.clone();
        let may_be_committed = foreign::enqueue(&self.node, &process, &message(&process, wish));
        self.note(if may_be_committed { Event::Unknown(id) } else { Event::Refused(id) });
    }

    /// Tries again under the same once key, each time with another message, until it is known which one it is, and
    /// perhaps once more: callers repeat themselves.
    async fn place_once(&self, mut wish: Wish) {
        self.stage.count(Kind::Once);
        let first = wish.order.id.clone();
        let mut tried = Vec::new();
        let mut repeats = self.stage.up_to(2) == 0;
        for attempt in 0.. {
            let Some(process) = self.node.process() else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            wish.order.id = if attempt == 0 { first.clone() } else { format!("{first}.{attempt}") };
            self.begin(&wish);
            tried.push(wish.order.id.clone());
            match self.enqueue_once(&process, &wish).await {
                Told::Committed(id) => {
                    self.settle_once(&tried, &id);
                    if !std::mem::take(&mut repeats) {
                        return;
                    }
                    tried = vec![id];
                }
                Told::NotCommitted => self.note(Event::Refused(wish.order.id.clone())),
                Told::Unknown => self.note(Event::Unknown(wish.order.id.clone())),
            }
            drop(process);
            tokio::time::sleep(self.stage.millis(50..500)).await;
        }
    }

    fn settle_once(&self, tried: &[String], id: &str) {
        if tried.last().is_some_and(|last| last != id) {
            self.stage.count(Kind::OnceTaken);
        }
        for other in tried.iter().filter(|tried| *tried != id) {
            self.note(Event::Refused(other.clone()));
        }
        self.note(Event::Enqueued(id.to_owned()));
    }

    /// What the next message is like.
    fn wish(&self, number: u64) -> Wish {
        let stage = &self.stage;
        let initial = &self.node.name[..1];
        let mut order = Order {
            id: format!("{initial}{number}"),
            destination: self.node.peer.to_string(),
            ..Order::default()
        };
        let endpoint = [PLAIN, PLAIN, FOLLOWED, SLOW, QUEUED, QUEUED_SLOW][index(stage.up_to(6))];
        let is_queued = matches!(endpoint, QUEUED | QUEUED_SLOW);
        if is_queued {
            stage.count(Kind::Queued);
        }
        if stage.up_to(3) > 0 {
            stage.count(Kind::Keyed);
            // What is handled at once may overtake what is handled later, so they share no key.
            let initial = if is_queued { 'q' } else { 'k' };
            order.key = Some(format!("{initial}{}", stage.up_to(2)));
        }
        let (mut due_in, mut ttl) = (None, None);
        match stage.up_to(10) {
            0 => {
                stage.count(Kind::Scheduled);
                order.scheduled = true;
                due_in = Some(stage.millis(200..5_000));
            }
            1 => {
                stage.count(Kind::Mortal);
                order.mortal = true;
                ttl = Some(stage.millis(50..2_000));
            }
            _ => {}
        }
        Wish { order, endpoint, due_in, ttl }
    }

    /// Notes that the message may be in the world from now on, and what its handler may enqueue as well.
    fn begin(&self, wish: &Wish) {
        self.stage.count(Kind::Message);
        self.note(Event::Begun(wish.order.clone()));
        if wish.endpoint == FOLLOWED {
            let order = Order {
                id: follow_up_of(&wish.order.id),
                destination: self.node.name.to_string(),
                key: wish.order.key.as_deref().map(follow_up_of),
                parent: Some(wish.order.id.clone()),
                ..Order::default()
            };
            self.stage.note(&self.node.peer, Event::Begun(order));
        }
    }

    async fn enqueue(&self, process: &Process, wish: &Wish) -> Told<()> {
        let result = async {
            let (db, message) = (process.db.clone(), message(process, wish)?);
            let append = move |tx: &mut twobox_sqlite::SqliteTx<'_>| {
                tx.execute(INSERT_ROW, [message.id.as_str()])?;
                db.append(tx, &message)
            };
            process.db.transaction::<_, Error, _>(append).await
        };
        self.judge(process, result.await)
    }

    async fn enqueue_once(&self, process: &Process, wish: &Wish) -> Told<String> {
        let result = async {
            let (db, message) = (process.db.clone(), message(process, wish)?);
            let key = OnceKey::new(wish.order.once.as_deref().unwrap_or_default())?;
            let append = move |tx: &mut twobox_sqlite::SqliteTx<'_>| {
                let once = db.append_once(tx, &key, &message)?;
                if let Once::Enqueued(id) = &once {
                    tx.execute(INSERT_ROW, [id.as_str()])?;
                }
                Ok(once.id().to_string())
            };
            process.db.transaction::<_, Error, _>(append).await
        };
        self.judge(process, result.await)
    }

    fn judge<T>(&self, process: &Process, result: Result<T, Error>) -> Told<T> {
        let told = match result {
            _ if !process.is_alive() => Told::Unknown,
            Ok(value) => Told::Committed(value),
            Err(error) if error.kind() == ErrorKind::CommitUnknown => Told::Unknown,
            Err(error) if error.kind() == ErrorKind::Stopped => {
                process.note_stopped(&error);
                Told::Unknown
            }
            Err(_) => Told::NotCommitted,
        };
        if matches!(told, Told::Unknown) {
            self.stage.count(Kind::CommitUnknown);
        }
        told
    }

    fn note(&self, event: Event) {
        self.stage.note(&self.node.name, event);
    }
}

fn message(process: &Process, wish: &Wish) -> Result<twobox_core::Message, Error> {
    let Wish { order, endpoint, due_in, ttl } = wish;
    let mut new = NewMessage::json(&order.destination, endpoint, &order.id)?.id(MessageId::new(&order.id)?);
    if let Some(key) = &order.key {
        new = new.ordering_key(OrderingKey::new(key)?);
    }
    if let Some(due_in) = due_in {
        new = new.due(process.clock.now().plus(*due_in));
    }
    if let Some(ttl) = ttl {
        new = new.ttl(*ttl);
    }
    process.stamp.message(&new)
}
