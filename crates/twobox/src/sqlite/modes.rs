//! Handlers that are not simply run in the transaction that acknowledges: stored first, outside of the database, or
//! claimed first. docs/MODES.md says what each guarantees.

use std::future::Future;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use twobox_engine::receiver::{OnError, Route, claim_first};
use twobox_engine::worker::{Handling, WorkContext};

use super::builder::{Claims, HandlingOf, RouteOf};
use super::signal::{decode, encode};
use super::{Builder, Context, Outbox, Signal};
use crate::{HandlerResult, Message, Response, SqliteHandler, SqliteTx};

impl Builder {
    /// Handles messages of type `T` later: they are stored and acknowledged at once, and a worker handles them. Effects
    /// written through the transaction happen exactly once; it runs on the database's writer, so it must be quick.
    pub fn handle_queued<T, R>(
        self,
        handler: impl Fn(&mut SqliteTx<'_>, T, &Context<'_>) -> HandlerResult<R> + Send + Sync + 'static,
    ) -> Self
    where
        T: Signal + DeserializeOwned,
        R: Serialize,
    {
        self.handle_queued_raw(T::NAME, move |tx, message, context| {
            encode(&handler(tx, decode(T::NAME, message.payload.as_bytes())?, context)?)
        })
    }

    /// Handles messages of a topic later, as they are.
    pub fn handle_queued_raw(
        mut self,
        topic: &str,
        handler: impl Fn(&mut SqliteTx<'_>, &Message, &Context<'_>) -> HandlerResult<Response>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let handling: HandlingOf = Box::new(move |outbox: &Outbox| {
            let outbox = outbox.clone();
            Handling::Transactional(SqliteHandler::new(move |tx, message| {
                handler(tx, message, &Context::new(message, &outbox))
            }))
        });
        self.topics.push((topic.into(), handling));
        self
    }

    /// Handles messages of type `T` later and outside of the database: at least once. Give whatever is called the
    /// message's id as idempotency key ([`WorkContext::idempotency_key`]). The lease is renewed while it runs, and the
    /// context tells when it is lost.
    pub fn handle_external<T, P, R>(
        self,
        handler: impl Fn(T, WorkContext) -> P + Send + Sync + 'static,
    ) -> Self
    where
        T: Signal + DeserializeOwned + Send + 'static,
        P: Future<Output = HandlerResult<R>> + Send + 'static,
        R: Serialize + 'static,
    {
        let handler = Arc::new(handler);
        self.handle_external_raw(T::NAME, move |context| {
            let handler = Arc::clone(&handler);
            async move {
                let value = decode(T::NAME, context.message.payload.as_bytes())?;
                encode(&handler(value, context).await?)
            }
        })
    }

    /// Handles messages of a topic later and outside of the database, as they are.
    pub fn handle_external_raw<P>(
        mut self,
        topic: &str,
        handler: impl Fn(WorkContext) -> P + Send + Sync + 'static,
    ) -> Self
    where
        P: Future<Output = HandlerResult<Response>> + Send + 'static,
    {
        let handling: HandlingOf =
            Box::new(move |_| Handling::External(Arc::new(move |context| Box::pin(handler(context)))));
        self.topics.push((topic.into(), handling));
        self
    }

    /// Handles messages of all topics that have no handler of their own, later and outside of the database, as they
    /// are. Without it, such messages are refused as unknown.
    pub fn handle_others_external_raw<P>(
        mut self,
        handler: impl Fn(WorkContext) -> P + Send + Sync + 'static,
    ) -> Self
    where
        P: Future<Output = HandlerResult<Response>> + Send + 'static,
    {
        self.default_topic =
            Some(Box::new(move |_| Handling::External(Arc::new(move |context| Box::pin(handler(context))))));
        self
    }

    /// Handles messages of type `T` outside of the database while the sender waits, claimed first: of many deliveries
    /// of a message, one runs. When the handler fails, the claim is kept and the message is a dead letter (at most
    /// once), unless [`claims_on_error`](Self::claims_on_error) says otherwise.
    pub fn handle_claimed<T, P, R>(
        mut self,
        handler: impl Fn(T, Arc<Message>) -> P + Send + Sync + 'static,
    ) -> Self
    where
        T: Signal + DeserializeOwned + Send + 'static,
        P: Future<Output = HandlerResult<R>> + Send + 'static,
        R: Serialize + 'static,
    {
        let (db, handler) = (self.db.clone(), Arc::new(handler));
        let route: RouteOf = Box::new(move |_, claims: &Claims| {
            let run = move |message: Arc<Message>| {
                let handler = Arc::clone(&handler);
                async move {
                    let value = decode(T::NAME, message.payload.as_bytes())?;
                    encode(&handler(value, message).await?)
                }
            };
            match &claims.consumer {
                Some(consumer) if claims.is_on => {
                    let run = Arc::new(move |message| Box::pin(run(message)) as _);
                    claim_first(db, consumer.clone(), T::NAME, claims.on_error, run)
                }
                _ => unclaimed(run),
            }
        });
        self.routes.push((T::NAME.into(), route));
        self
    }

    /// What becomes of a claim when its handler fails. Default: it is kept.
    pub fn claims_on_error(mut self, on_error: OnError) -> Self {
        self.claims.on_error = on_error;
        self
    }

    /// Whether handlers added by [`handle_claimed`](Self::handle_claimed) are wrapped in a claim at all. Default: yes.
    /// Without, duplicates that arrive together may both run.
    pub fn claims(mut self, are_on: bool) -> Self {
        self.claims.is_on = are_on;
        self
    }
}

/// The handler without a claim: what it did is noted afterwards, so it runs at least once.
fn unclaimed<P>(run: impl Fn(Arc<Message>) -> P + Send + Sync + 'static) -> Route<SqliteHandler>
where
    P: Future<Output = HandlerResult<Response>> + Send + 'static,
{
    Route::Prepared(Arc::new(move |message| {
        let run = run(message);
        Box::pin(async move {
            let response = run.await?;
            Ok(SqliteHandler::new(move |_, _| Ok(response.clone())))
        })
    }))
}
