//! The network between two nodes: it loses, delays, doubles, damages and confuses, one way or both.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use twobox_core::clock::BoxFuture;
use twobox_core::ports::{Answer, DeliveryError, Link, Transport};
use twobox_core::signing::Mac;
use twobox_core::wire::{self, Asked, Limits, Parsed};
use twobox_core::{Clock as _, Message, Result};
use twobox_testkit::history::Event;

use super::clock::ProcessClock;
use super::keys::Keys;
use super::process::Node;
use super::serve::serve;
use super::stage::{Stage, lock};
use super::tally::Kind;

/// Bytes on their way to a receiver.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) head: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

/// Bytes on their way back.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub(super) status: u16,
    /// Key id and MAC.
    pub(super) signature: Option<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// Everything one node sends and everything that comes back for it.
pub(super) struct Way {
    /// Who sends.
    pub(super) from: Arc<Node>,
    /// Who receives.
    pub(super) to: Arc<Node>,
    pub(super) keys: Keys,
    /// Nothing gets through in this direction: neither requests of `from` nor its answers.
    pub(super) is_cut: AtomicBool,
    /// An answer that came this way, to be given to a request it does not belong to.
    last: Mutex<Option<Arrived>>,
}

impl Way {
    pub(super) fn new(from: &Arc<Node>, to: &Arc<Node>) -> Result<Self> {
        let (from, to) = (Arc::clone(from), Arc::clone(to));
        let keys = Keys::new(&from.name)?;
        Ok(Self { keys, from, to, is_cut: AtomicBool::new(false), last: Mutex::default() })
    }
}

/// Both directions.
pub(super) struct Network {
    pub(super) stage: Arc<Stage>,
    pub(super) ways: [Way; 2],
    under_way: AtomicU64,
}

/// What the network does to a request whose sender hears nothing of it.
enum Silence {
    /// The sender waits until it gives up.
    Long,
    /// The connection breaks.
    Short,
}

impl Network {
    pub(super) fn new(stage: &Arc<Stage>, ways: [Way; 2]) -> Self {
        Self { stage: Arc::clone(stage), ways, under_way: AtomicU64::new(0) }
    }

    /// Whether nothing is on its way to a receiver any more.
    pub(super) fn is_quiet(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0
    }

    /// The direction from a node, and the one back.
    fn ways(&self, from: &Node) -> (&Way, &Way) {
        let [one, two] = &self.ways;
        if one.from.name == from.name { (one, two) } else { (two, one) }
    }

    /// Carries a request and brings its answer back, or not.
    async fn carry(self: &Arc<Self>, from: &Arc<Node>, request: Request) -> Result<Arrived, DeliveryError> {
        let (there, back) = self.ways(from);
        let stage = &self.stage;
        if there.is_cut.load(Ordering::SeqCst) {
            stage.count(Kind::Partitioned);
            if stage.up_to(2) == 0 {
                return Err(DeliveryError::unreachable("no way to the host"));
            }
            return self.silence().await;
        }
        if stage.mishap(30, Kind::AnswerForged) {
            return Ok(forge(&request));
        }
        self.copies(from, &request);
        if stage.mishap(16, Kind::RequestLost) {
            return self.silence().await;
        }
        let (reply, answered) = oneshot::channel();
        self.send(from, request, self.delay(Kind::RequestLate), Some(reply));
        let Ok(arrived) = answered.await else { return self.silence().await };
        let arrived = arrived?;
        tokio::time::sleep(self.delay(Kind::AnswerLate)).await;
        if back.is_cut.load(Ordering::SeqCst) || stage.mishap(16, Kind::AnswerLost) {
            return self.silence().await;
        }
        Ok(self.confuse(there, arrived))
    }

    /// Sends copies of a request: soon, and much later.
    fn copies(self: &Arc<Self>, from: &Arc<Node>, request: &Request) {
        if self.stage.mishap(12, Kind::RequestTwice) {
            self.send(from, request.clone(), self.stage.millis(0..400), None);
        }
        if self.stage.mishap(20, Kind::RequestCopy) {
            self.send(from, request.clone(), self.stage.millis(2_000..20_000), None);
        }
    }

    fn delay(&self, late: Kind) -> Duration {
        if self.stage.mishap(16, late) { self.stage.millis(400..1_500) } else { self.stage.millis(0..20) }
    }

    /// The sender hears nothing.
    async fn silence(&self) -> Result<Arrived, DeliveryError> {
        let silence = if self.stage.up_to(2) == 0 { Silence::Long } else { Silence::Short };
        match silence {
            Silence::Long => std::future::pending().await,
            Silence::Short => Err(DeliveryError::ambiguous("the connection broke")),
        }
    }

    /// Lets a request arrive after a while, whatever becomes of its sender.
    fn send(
        self: &Arc<Self>,
        from: &Arc<Node>,
        mut request: Request,
        delay: Duration,
        reply: Option<oneshot::Sender<Result<Arrived, DeliveryError>>>,
    ) {
        if self.stage.mishap(40, Kind::RequestGarbled) {
            garble(&mut request.body, self.stage.chance());
        }
        let (network, from) = (Arc::clone(self), Arc::clone(from));
        self.under_way.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let arrived = network.arrive(&from, &request).await;
            network.under_way.fetch_sub(1, Ordering::SeqCst);
            if let (Some(reply), Some(arrived)) = (reply, arrived) {
                // The sender may have given up.
                let _: Result<(), _> = reply.send(arrived);
            }
        });
    }

    /// A request reaches the receiver's machine. `None`: nobody answers.
    async fn arrive(&self, from: &Node, request: &Request) -> Option<Result<Arrived, DeliveryError>> {
        let (there, _) = self.ways(from);
        let Some(process) = there.to.process() else {
            self.stage.count(Kind::NobodyThere);
            return Some(Err(DeliveryError::unreachable("connection refused")));
        };
        let keyrings = there.keys.receiver();
        serve(&self.stage, &there.to, &process, &keyrings, request).await.map(Ok)
    }

    /// Damages an answer, or exchanges it for another one.
    fn confuse(&self, way: &Way, mut arrived: Arrived) -> Arrived {
        let other = lock(&way.last).replace(arrived.clone());
        if let Some(other) = other.filter(|_| self.stage.mishap(40, Kind::AnswerForeign)) {
            return other;
        }
        if self.stage.mishap(40, Kind::AnswerGarbled) {
            garble(&mut arrived.body, self.stage.chance());
        }
        arrived
    }
}

/// What somebody says who has read the request and knows no key: all is done.
fn forge(request: &Request) -> Arrived {
    let items = wire::parse_batch(&request.body, &Limits::default()).unwrap_or_default();
    let parsed: Vec<Parsed> = items.into_iter().flatten().collect();
    let key_id = parsed.iter().find_map(|parsed| Some(parsed.signature.as_ref()?.key_id.to_string()));
    let done = Answer::Done(None);
    let body = wire::encode_answers(parsed.iter().map(|parsed| (&parsed.message.id, &done)));
    Arrived { status: 200, signature: key_id.map(|id| (id, Mac::from_bytes([7; 32]).to_base64())), body }
}

/// Changes one bit.
fn garble(body: &mut [u8], chance: u64) {
    if !body.is_empty() {
        let at = super::stage::index(chance % body.len() as u64);
        body[at] ^= 1 << (chance >> 60 & 7);
    }
}

/// One process's end of the network.
pub(super) struct Line {
    pub(super) network: Arc<Network>,
    pub(super) node: Arc<Node>,
    pub(super) clock: Arc<ProcessClock>,
}

impl Transport for Line {
    fn deliver(
        &self,
        link: &Arc<Link>,
        batch: Vec<Arc<Message>>,
        _: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>> {
        let (network, node, sent) = (Arc::clone(&self.network), Arc::clone(&self.node), self.clock.now());
        let link = Arc::clone(link);
        Box::pin(async move { exchange(&network, &node, &link, &batch, sent).await })
    }
}

async fn exchange(
    network: &Arc<Network>,
    node: &Arc<Node>,
    link: &Link,
    batch: &[Arc<Message>],
    sent: twobox_core::Timestamp,
) -> Result<Vec<Answer>, DeliveryError> {
    if node.disk.is_off() {
        return std::future::pending().await; // a machine without power sends nothing
    }
    let stage = &network.stage;
    let keyring = network.ways(node).0.keys.sender();
    let key = keyring.active(sent).ok_or_else(|| DeliveryError::unreachable("no key holds now"))?;
    let (asked, body) = Asked::encode(link, batch, sent, Some(key));
    let head = asked.probe().map(|probe| probe.headers().to_vec()).unwrap_or_default();
    for message in batch {
        stage.note(&node.name, Event::Sent(message.id.to_string()));
    }
    let Arrived { status, signature, body } = network.carry(node, Request { head, body }).await?;
    match status {
        200 => {}
        400 => return Err(DeliveryError::ambiguous("the request could not be read")),
        _ => return Err(DeliveryError::unreachable(format!("status {status}"))),
    }
    let (key_id, mac) = signature.unzip();
    asked
        .check(status, key_id.as_deref(), mac.as_deref(), &body)
        .inspect_err(|_| stage.count(Kind::AnswerDisbelieved))?;
    let answers = wire::parse_answers(&body, batch.iter().map(|message| &message.id))
        .map_err(|error| DeliveryError::ambiguous("the answer cannot be read").with_source(error))?;
    for (message, answer) in batch.iter().zip(&answers) {
        if matches!(answer, Answer::Done(_) | Answer::Duplicate(_)) && !node.disk.is_off() {
            stage.note(&node.name, Event::Acknowledged(message.id.to_string()));
        }
    }
    Ok(answers)
}
