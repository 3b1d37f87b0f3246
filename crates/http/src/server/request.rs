//! From a request to its answer: limits, shape, signature, destination, and only then the receiver.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request};
use twobox_core::clock::BoxFuture;
use twobox_core::meters::HttpOutcome;
use twobox_core::ports::{Answer, Link};
use twobox_core::signing::{Keyrings, Refused};
use twobox_core::wire::{self, Asker, Parsed, Probe, header};
use twobox_core::{Destination, Error, Live, Message, MessageId, Source, crash_point, one_line};

use super::Service;
use super::body::{self, Read};
use super::connections::Connection;
use super::reply::{Refusal, Reply, Why};
use super::room::{Held, TURN_WAIT};
use crate::{RECEIVE, RECEIVE_BATCH};

/// How long a store may take to say which inbox it is; then answers do not name it. It is asked until it has answered
/// once.
const MEET_WAIT: Duration = Duration::from_secs(1);

/// How many messages a route takes at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    One,
    Batch,
}

/// A receiver at work. If nobody waits for it any more, because the sender has hung up or time is up, it goes on in a
/// task of its own: what the receiver is still using must not be free for others.
struct Receiving(Option<(BoxFuture<'static, Received>, Held)>);

type Received = Result<Vec<Answer>, Error>;

impl Future for Receiving {
    type Output = Received;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some((receiving, _)) = &mut self.0 else { return Poll::Pending };
        let received = receiving.as_mut().poll(cx);
        if received.is_ready() {
            self.0 = None;
        }
        received
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let Some((receiving, held)) = self.0.take() {
            tokio::spawn(async move {
                let _: Result<_, _> = receiving.await;
                drop(held);
            });
        }
    }
}

impl Service {
    pub(super) async fn handle(&self, request: Request<Incoming>, connection: &Arc<Connection>) -> Reply {
        match self.answer(request, connection).await {
            Ok(reply) => {
                connection.prove();
                self.server.meters.http.requests.one(HttpOutcome::Answered);
                reply
            }
            Err(refusal) => {
                self.server.meters.http.requests.one(refusal.outcome());
                refusal.into()
            }
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> Result<Reply, Refusal> {
        let route = route(&request)?;
        let (head, body) = request.into_parts();
        super::check_json(&head.headers).map_err(|why| Why::Unsupported.because(why))?;
        let limits = &self.server.limits;
        let bytes_max = match route {
            Route::One => limits.wire.envelope_bytes,
            Route::Batch => limits.wire.batch_bytes,
        };
        let Read { bytes, room } = body::read(body, bytes_max, limits, &self.room, connection).await?;
        let held = self.room.turn(room).await?;
        match route {
            Route::One => self.one(&head.headers, &bytes, held).await,
            Route::Batch => self.batch(&head.headers, &bytes, held).await,
        }
    }

    async fn one(&self, headers: &HeaderMap, body: &Bytes, held: Held) -> Result<Reply, Refusal> {
        let parsed = [self.parse_one(body).map_err(|error| malformed(&error))?];
        let keyrings = self.keyrings();
        let asker = self.authenticate(keyrings.as_deref(), &parsed)?;
        let inbox = self.meet(Some(&parsed[0])).await;
        let [parsed] = parsed;
        let message = Arc::new(parsed.message);
        let answers = self.receive(vec![Arc::clone(&message)], headers, held).await?;
        let answer = answers.first().unwrap_or(&Answer::NotReached);
        Ok(Reply::to_one(&message, answer).of_inbox(inbox.as_deref()).signed(&asker))
    }

    /// Where nothing is signed, a sender may leave out what only signatures need.
    fn parse_one(&self, body: &Bytes) -> Result<Parsed, Error> {
        let limits = &self.server.limits.wire;
        match (&self.server.keyrings, self.server.names.last()) {
            (None, Some(name)) => wire::parse_plain(body, limits, name, self.server.clock.now()),
            _ => wire::parse(body, limits),
        }
    }

    async fn batch(&self, headers: &HeaderMap, body: &Bytes, held: Held) -> Result<Reply, Refusal> {
        let items = wire::parse_batch(body, &self.server.limits.wire).map_err(|error| malformed(&error))?;
        if items.is_empty() {
            return self.probe(headers).await;
        }
        // One bad envelope spoils the request: it cannot be authentic, so nothing may be said about it.
        let parsed: Vec<Parsed> =
            items.into_iter().collect::<Result<_, _>>().map_err(|error| malformed(&error))?;
        let keyrings = self.keyrings();
        let asker = self.authenticate(keyrings.as_deref(), &parsed)?;
        let inbox = self.meet(parsed.first()).await;
        let messages: Vec<Arc<Message>> = parsed.into_iter().map(|parsed| Arc::new(parsed.message)).collect();
        let answers = self.receive(messages.clone(), headers, held).await?;
        let ids = messages.iter().map(|message| &message.id);
        Ok(Reply::to_batch(ids.zip(&answers)).of_inbox(inbox.as_deref()).signed(&asker))
    }

    /// Says that somebody is there, signed, without any effect.
    async fn probe(&self, headers: &HeaderMap) -> Result<Reply, Refusal> {
        let reply = Reply::to_batch([]);
        let Some(keyrings) = self.keyrings() else {
            return Ok(reply.of_inbox(self.meet(None).await.as_deref()));
        };
        let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let probe = Probe::read(value).map_err(|_| refused(Refused::Unauthentic))?;
        let (source, now) = (probe.link.source.clone(), self.server.clock.now());
        let asker =
            Asker::of_probe(&keyrings, probe, now).map_err(|why| self.unauthentic(&source, None, why))?;
        self.check_destination(asker.destination())?;
        // A probe leaves no trace: who sends is noted with the first message.
        Ok(reply.of_inbox(self.meet(None).await.as_deref()).signed(&asker))
    }

    /// Which inbox answers. It is told who sends only if that is certain.
    async fn meet(&self, first: Option<&Parsed>) -> Option<Arc<str>> {
        let link = first.filter(|_| self.server.keyrings.is_some()).map(|first| Link {
            source: first.message.source.clone(),
            destination: first.message.destination.clone(),
            outbox: first.outbox.as_ref().into(),
        });
        tokio::time::timeout(MEET_WAIT, self.receiver.meet(link.as_ref())).await.ok().flatten()
    }

    /// The keys as they are now: one request is judged and answered with the same ones.
    fn keyrings(&self) -> Option<Arc<Keyrings>> {
        self.server.keyrings.as_ref().map(Live::get)
    }

    /// Who sent these messages: all of them the same sender, with the same key, to us.
    fn authenticate<'k>(
        &self,
        keyrings: Option<&'k Keyrings>,
        parsed: &[Parsed],
    ) -> Result<Asker<'k>, Refusal> {
        let Some(first) = parsed.first() else { return Err(Why::Malformed.because("no message")) };
        let asker = match keyrings {
            Some(keyrings) => Asker::of(keyrings, parsed, self.server.clock.now()).map_err(|why| {
                let Message { source, id, .. } = &first.message;
                self.unauthentic(source, Some(id), why)
            })?,
            None => Asker::unsigned(first),
        };
        parsed.iter().try_for_each(|parsed| self.check_destination(&parsed.message.destination))?;
        Ok(asker)
    }

    /// Says that a signature does not hold: who it claims to be from, and of a batch the first message.
    fn unauthentic(&self, source: &Source, id: Option<&MessageId>, why: Refused) -> Refusal {
        if why != Refused::MixedKeys
            && let Some(left_out) = self.unauthentic.room(self.server.clock.monotonic())
        {
            let (source, message_id, error) = (source.as_str(), id.map(MessageId::as_str), why.to_string());
            tracing::warn!(source, message_id, error, left_out, "HMAC verification failed");
        }
        refused(why)
    }

    fn check_destination(&self, destination: &Destination) -> Result<(), Refusal> {
        if self.server.names.contains(destination) {
            return Ok(());
        }
        Err(Why::Misdirected.because("this is another service than the destination: check the sender's URL"))
    }

    async fn receive(
        &self,
        messages: Vec<Arc<Message>>,
        headers: &HeaderMap,
        held: Held,
    ) -> Result<Vec<Answer>, Refusal> {
        crash_point!("http.authenticated");
        let (count, budget) = (messages.len(), self.budget(headers));
        let receiving = self.receiver.receive(messages, budget);
        let receiving = Receiving(Some((receiving, held)));
        let limit = budget.saturating_mul(2).saturating_add(TURN_WAIT);
        let Ok(received) = tokio::time::timeout(limit, receiving).await else {
            return Err(Why::Unavailable.because("the receiver does not answer"));
        };
        match received {
            Ok(answers) if answers.len() == count => Ok(answers),
            Ok(_) => Err(Why::Unavailable.because("the receiver answered another number of messages")),
            Err(error) => {
                tracing::warn!(error = one_line(&error), "the receiver cannot answer");
                Err(Why::Unavailable.because("the receiver's store cannot answer now"))
            }
        }
    }

    /// How long the receiver may work: half of what the sender waits leaves time for the way there and back.
    fn budget(&self, headers: &HeaderMap) -> Duration {
        let budget = self.server.limits.budget;
        let waits = headers.get(header::TIMEOUT).and_then(|value| value.to_str().ok()?.parse().ok());
        waits.map_or(budget, |millis| budget.min(Duration::from_millis(millis) / 2))
    }
}

fn route(request: &Request<Incoming>) -> Result<Route, Refusal> {
    let route = match request.uri().path() {
        RECEIVE => Route::One,
        RECEIVE_BATCH => Route::Batch,
        _ => return Err(Why::NotFound.because("there is nothing at this path")),
    };
    if request.method() == Method::POST {
        return Ok(route);
    }
    Err(Why::MethodNotAllowed.because("this path takes only POST"))
}

fn malformed(error: &Error) -> Refusal {
    Why::Malformed.because(error.to_string())
}

/// Unknown key and wrong signature look the same from outside (S11).
fn refused(refused: Refused) -> Refusal {
    let why = match refused {
        Refused::Stale => Why::Stale,
        Refused::MixedKeys => Why::Malformed,
        _ => Why::Unauthentic,
    };
    why.because(refused.to_string())
}
