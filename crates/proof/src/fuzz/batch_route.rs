//! The whole way in: head, body, limits, signature, receiver, store. Whatever arrives, nobody's message but an honest
//! one is handled, what is handled is written once, and nothing that arrives is taken for trouble of our own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use twobox_core::clock::BoxFuture;
use twobox_core::ports::{Answer, Link, Receive};
use twobox_core::signing::{
    Key, Mac, SignedAnswer, SignedProbe, request_sha256, sha256, sign_probe, verify_answer,
};
use twobox_core::wire::{self, Probe, header};
use twobox_core::{BoxError, Consumer, Destination, Endpoint, Error, Message, MessageId, Response};
use twobox_engine::Receiver;
use twobox_engine::receiver::{ReceiverBuilder, Route};
use twobox_http::HttpServer;
use twobox_sqlite::{Drive, Durability, Sqlite, SqliteHandler};
use twobox_testkit::{ManualClock, SeededRandom, VirtualClock};

use super::exchange::{Said, answers, exchange, runtime, server};
use super::feed::Feed;
use super::post::{self, NOW};
use super::{Check, edit, ensure};

/// After so many messages a new store is opened, so that runs of any length stay quick.
const MESSAGES_MAX: u64 = 1000;

const PATHS: [&str; 5] = ["/_rf/receive/batch", "/_rf/receive", "/", "/_rf/receive/batch?a=1", "*"];
const METHODS: [&str; 4] = ["POST", "GET", "HEAD", "OPTIONS"];
const EXTRA: [&str; 12] = [
    "",
    "Expect: 100-continue\r\n",
    "Connection: close\r\n",
    "Content-Encoding: gzip\r\n",
    "Content-Type: text/plain\r\n",
    "Transfer-Encoding: chunked\r\n",
    "rf-timeout-ms: 0\r\n",
    "rf-timeout-ms: 18446744073709551615\r\n",
    "rf-hmac: \u{e9}\r\n",
    "Upgrade: h2c\r\n",
    "Content-Length: 0\r\n",
    "X: \t \r\n",
];

struct Routes {
    world: World,
    usual: Vec<Message>,
    link: Link,
    probe: String,
    key: Key,
}

pub(super) fn open() -> Result<Check, BoxError> {
    let (key, link) = (post::shop_key()?, post::link()?);
    let signature = sign_probe(&key, &SignedProbe { link: &link, sent: NOW });
    let probe = Probe { link: link.clone(), sent: NOW, signature };
    let mut routes = Routes {
        world: World::open()?,
        usual: post::usual()?,
        probe: probe.headers().map(|(name, value)| format!("{name}: {value}\r\n")).concat(),
        link,
        key,
    };
    Ok(Box::new(move |input| routes.check(input)))
}

pub(super) fn seeds() -> Result<Vec<Vec<u8>>, BoxError> {
    let body = post::batch(&post::shop_key()?, &post::usual()?);
    let whole = [request("POST", PATHS[0], "", body.len()).as_bytes(), &body].concat();
    let mut seeds = vec![[&[0, 0], &*whole].concat(), [&[0, 9], &*whole, &*whole].concat()];
    seeds.extend((0..3).map(|spoil| vec![1, 20, spoil]));
    seeds.extend((0..12).map(|extra| vec![1, 0, 1, 0, 0, extra, 1, 30, 3]));
    seeds.extend([
        vec![2],
        vec![2, 0, 1],
        vec![2, 99, 2, 12, 1, b'x', 4, 4, 4, 4, 4, 4, 4],
        vec![3],
        vec![3, 0, 1, 4, 2],
    ]);
    seeds.extend((0..14).map(|of| [vec![2, 0, 1, 0], vec![of; 16]].concat()));
    Ok(seeds)
}

fn request(method: &str, path: &str, extra: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n{extra}Content-Length: {length}\r\n\r\n"
    )
}

impl Routes {
    fn check(&mut self, input: &[u8]) -> Result<(), BoxError> {
        if self.world.done() >= MESSAGES_MAX {
            self.world = World::open()?;
        }
        let mut feed = Feed::new(input);
        let shape = feed.below(4);
        // Where the request is torn on its way, if it is.
        let first = usize::from(feed.byte()) * 4;
        match shape {
            0 => self.tampered(feed.rest(), first).map(drop),
            1 => {
                let request = self.spoilt(&mut feed);
                self.tampered(&request, first).map(drop)
            }
            2 => self.honest(&mut feed, first),
            _ => self.probed(&mut feed, first),
        }
    }

    /// A signed batch that was spoilt before it was wrapped, after it, or only in its wrapping.
    fn spoilt(&self, feed: &mut Feed<'_>) -> Vec<u8> {
        let spoil = feed.below(3);
        let (method, path, extra) = (feed.one_of(&METHODS), feed.one_of(&PATHS), feed.one_of(&EXTRA));
        let (method, path) = if spoil == 0 { ("POST", PATHS[0]) } else { (method, path) };
        let mut body = match path {
            "/_rf/receive" => post::envelope(&self.key, &self.usual[feed.below(3)]),
            _ => post::batch(&self.key, &self.usual[feed.below(3)..]),
        };
        let other = self.probe.as_bytes();
        if spoil == 0 {
            edit::tamper(feed, &mut body, other);
        }
        let mut request = request(method, path, extra, body.len()).into_bytes();
        if spoil == 1 {
            edit::tamper(feed, &mut request, other);
        }
        request.extend_from_slice(&body);
        if spoil == 2 {
            edit::tamper(feed, &mut request, other);
        }
        request
    }

    /// Whatever arrives: only the usual messages are known to be signed.
    fn tampered(&self, request: &[u8], first: usize) -> Result<Vec<Said>, BoxError> {
        self.world.exchange(request, first, &self.usual)
    }

    /// Messages of all kinds, signed by their sender: each is answered, and the answer is signed. One that is meant for
    /// somebody else is not taken, and neither is what came with it.
    fn honest(&self, feed: &mut Feed<'_>, first: usize) -> Result<(), BoxError> {
        let (count, misdirected) = (1 + feed.below(3), feed.below(8) == 7);
        let mut messages: Vec<Message> = (0..count).map(|_| post::message(feed)).collect::<Result<_, _>>()?;
        if misdirected {
            messages[feed.below(count)].destination = Destination::new("crm")?;
        }
        let body = post::batch(&self.key, &messages);
        let request = [request("POST", PATHS[0], "", body.len()).as_bytes(), &body].concat();
        if misdirected {
            let said = self.world.exchange(&request, first, &[])?;
            return ensure(said.iter().map(|said| said.status).eq([421]), || {
                "a stranger's post was taken".into()
            });
        }
        let said = self.world.exchange(&request, first, &messages)?;
        self.authentic(&said, named(&body)?, messages.iter().map(|message| &message.id))
    }

    /// A probe, honest or with a spoilt head.
    fn probed(&self, feed: &mut Feed<'_>, first: usize) -> Result<(), BoxError> {
        let (untouched, mut head) = (feed.is_empty(), self.probe.clone().into_bytes());
        edit::tamper(feed, &mut head, b"rf-source: bank\r\n");
        let start = request("POST", PATHS[0], "", 2);
        let start = start.strip_suffix("\r\n").unwrap_or_default();
        let said = self.tampered(&[start.as_bytes(), &head, b"\r\n[]"].concat(), first)?;
        let named =
            request_sha256([&sign_probe(&self.key, &SignedProbe { link: &self.link, sent: NOW }).mac]);
        if untouched { self.authentic(&said, named, std::iter::empty()) } else { Ok(()) }
    }

    fn authentic<'a>(
        &self,
        said: &[Said],
        request: [u8; 32],
        ids: impl Iterator<Item = &'a MessageId>,
    ) -> Result<(), BoxError> {
        let [said] = said else { return Err(format!("{} answers to one request", said.len()).into()) };
        ensure(said.status == 200, || format!("an honest request was answered {}", said.status))?;
        let mac = said.header(header::HMAC).and_then(Mac::from_base64).ok_or("the answer is not signed")?;
        let answer = SignedAnswer {
            source: &self.link.source,
            destination: &self.link.destination,
            sent: NOW,
            request_sha256: request,
            status: said.status,
            body_sha256: sha256(&said.body),
        };
        verify_answer(&self.key, &answer, &mac)?;
        let ids: Vec<&MessageId> = ids.collect();
        wire::parse_answers(&said.body, ids.into_iter())?;
        Ok(())
    }
}

/// What names a batch in the signature of its answer.
fn named(body: &[u8]) -> Result<[u8; 32], BoxError> {
    let parsed = wire::parse_batch(body, &wire::Limits::default())?;
    let macs = parsed.into_iter().map(|parsed| Ok(parsed?.signature.ok_or("not signed")?.mac));
    Ok(request_sha256(&macs.collect::<Result<Vec<Mac>, BoxError>>()?))
}

/// A receiver with its store, behind a server.
struct World {
    db: Sqlite,
    server: HttpServer,
    seen: Arc<Mutex<Seen>>,
    receiver: Arc<dyn Receive>,
    driver: tokio::task::JoinHandle<()>,
    runtime: Runtime,
    _folder: TempDir,
}

impl World {
    fn open() -> Result<Self, BoxError> {
        let (runtime, folder) = (runtime()?, tempfile::tempdir()?);
        let path = folder.path().join("billing.db");
        let (db, driver, inner) = runtime.block_on(async {
            let db = Sqlite::builder()
                .clock(Arc::new(ManualClock::default()))
                .random(Arc::new(SeededRandom::new(1)))
                .durability(Durability::ProcessCrash) // nobody cuts the power here
                .drive(Drive::Manual)
                .open(&path)
                .await?;
            let driver = tokio::spawn({
                let db = db.clone();
                async move { db.drive().await }
            });
            db.migrate().await?;
            db.transaction::<_, Error, _>(|tx| tx.execute("CREATE TABLE effects (id TEXT)", [])).await?;
            let receiver = receiver(&db)?;
            Ok::<_, BoxError>((db, driver, receiver))
        })?;
        let seen = Arc::new(Mutex::default());
        let receiver: Arc<dyn Receive> = Arc::new(Tap { inner, seen: Arc::clone(&seen) });
        let server = server(post::keyrings()?)?;
        Ok(Self { db, server, seen, receiver, driver, runtime, _folder: folder })
    }

    /// How many messages have been handled.
    fn done(&self) -> u64 {
        lock(&self.seen).done
    }

    /// Sends a request and checks what holds for every one: who was believed, what was written, what was said.
    fn exchange(&self, request: &[u8], first: usize, signed: &[Message]) -> Result<Vec<Said>, BoxError> {
        self.runtime.block_on(async {
            let said = answers(&exchange(&self.server, &self.receiver, request, first).await?)?;
            self.check_messages(signed).await?;
            said.iter().try_for_each(check_status)?;
            Ok(said)
        })
    }

    async fn check_messages(&self, signed: &[Message]) -> Result<(), BoxError> {
        let (messages, done) = {
            let mut seen = lock(&self.seen);
            (std::mem::take(&mut seen.messages), seen.done)
        };
        if messages.is_empty() {
            return Ok(());
        }
        if let Some(message) = messages.iter().find(|message| !signed.contains(message)) {
            return Err(format!("handled, but never signed: {message:?}").into());
        }
        let count = |tx: &mut twobox_sqlite::SqliteTx<'_>| {
            tx.query("SELECT count(*) FROM effects", [], |row| row.get::<i64>(0))
        };
        let effects = self.db.transaction::<_, Error, _>(count).await?;
        let expected = i64::try_from(done)?;
        ensure(effects == [expected], || format!("{effects:?} effects of {expected} messages that were done"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn receiver(db: &Sqlite) -> Result<Receiver<Sqlite>, Error> {
    let handler = SqliteHandler::new(|tx, message| {
        tx.execute("INSERT INTO effects (id) VALUES (?1)", [message.id.as_str()])?;
        Response::json(&"paid").map_err(Into::into)
    });
    Receiver::builder(db.clone(), Consumer::new("billing")?, Arc::new(VirtualClock::start()))
        .route(Endpoint::new("Pay")?, Route::Handler(handler.clone()))?
        .route(Endpoint::new("é")?, Route::Handler(handler))
        .map(ReceiverBuilder::build)
}

/// What arrives is the sender's trouble. The one exception was asked for: a sender that does not wait is told, of its
/// own signed message, that its turn did not come.
fn check_status(said: &Said) -> Result<(), BoxError> {
    let not_reached = said.status == 503 && said.body.windows(11).any(|part| part == b"not_reached");
    ensure(said.status < 500 || not_reached, || {
        format!("answered {} {}", said.status, String::from_utf8_lossy(&said.body))
    })
}

/// Stands between server and receiver and takes notes.
struct Tap {
    inner: Receiver<Sqlite>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// What arrived since anybody looked.
    messages: Vec<Arc<Message>>,
    /// How many were answered as done, ever.
    done: u64,
}

impl Receive for Tap {
    fn receive(
        &self,
        messages: Vec<Arc<Message>>,
        budget: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, Error>> {
        let (receiving, seen) =
            (Receive::receive(&self.inner, messages.clone(), budget), Arc::clone(&self.seen));
        lock(&seen).messages.extend(messages);
        Box::pin(async move {
            let answers = receiving.await?;
            let done = answers.iter().filter(|answer| matches!(answer, Answer::Done(_))).count();
            lock(&seen).done += done as u64;
            Ok(answers)
        })
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
