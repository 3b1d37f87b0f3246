//! Mark before handle: the claim is committed, then the handler runs, outside of any transaction (CEB).
//!
//! It is a first half that claims, handles and notes the outcome; what the receiver does afterwards, in its
//! transaction, is to read the outcome from the row and answer with it.

use std::sync::Arc;

use twobox_core::clock::BoxFuture;
use twobox_core::ports::{
    ClaimFirst, ClaimOutcome, ClaimToken, ContentHash, DedupStore, InboxStore, MessageKey,
};
use twobox_core::{Consumer, HandlerResult, Message, Refusal, Response, crash_point, mutant};

use super::{Claim, Route};
use crate::Patience;

/// A handler that keeps its effects outside of the database.
pub type ClaimedHandler =
    Arc<dyn Fn(Arc<Message>) -> BoxFuture<'static, HandlerResult<Response>> + Send + Sync>;

/// What becomes of the claim when the handler fails (CEB-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// It is kept, and the message is a dead letter: handled at most once. Default.
    #[default]
    Keep,
    /// It is given back, and the sender tries again: handled at least once, unless the process dies meanwhile.
    Release,
}

/// A route whose messages are claimed before they are handled. A claim that a process has left behind when it died is
/// visible as unfinished, and can be released by age.
pub fn claim_first<S: InboxStore + DedupStore>(
    store: S,
    consumer: Consumer,
    name: &str,
    on_error: OnError,
    handler: ClaimedHandler,
) -> Route<S::Handler> {
    let claims = Arc::new(Claims { store, consumer, name: name.into(), on_error, handler });
    let claim: Claim<S::Handler> = Arc::new(move |message, patience| {
        let claims = Arc::clone(&claims);
        Box::pin(async move { claims.handle(message, &patience).await })
    });
    Route::Claimed(claim)
}

struct Claims<S> {
    store: S,
    consumer: Consumer,
    name: String,
    on_error: OnError,
    handler: ClaimedHandler,
}

impl<S: InboxStore + DedupStore> Claims<S> {
    async fn handle(&self, message: Arc<Message>, patience: &Patience) -> HandlerResult<S::Handler> {
        let key = MessageKey { source: message.source.clone(), id: message.id.clone() };
        let claim = ClaimFirst {
            key: key.clone(),
            topic: message.endpoint.clone(),
            handler: self.name.clone(),
            hash: Some(ContentHash::sha256(message.payload.sha256())),
            available: Some(message.available),
            replay: message.replay,
        };
        let token = match self.store.claim_first(&self.consumer, &claim).await? {
            Some(token) => token,
            None if mutant!(ClaimNotMade) => ClaimToken(0),
            // Somebody has it or had it, or it is too old: the row says which. If it says nothing, it was released
            // just now.
            None => return Err(Refusal::retry("claimed by another delivery")),
        };
        crash_point!("claim.before-handler");
        let handler = Arc::clone(&self.handler);
        let outcome = patience.run(async move { handler(message).await }).await;
        crash_point!("claim.handled");
        let noted = self.store.settle_claim(&self.consumer, &key, token, &self.meaning(&outcome)).await?;
        crash_point!("claim.noted");
        if !noted {
            let (source, message_id) = (key.source.as_str(), key.id.as_str());
            tracing::warn!(source, message_id, "a claim was released while its message was being handled");
        }
        outcome.map(S::answering)
    }

    /// What the handler's outcome means to the claim.
    fn meaning(&self, outcome: &HandlerResult<Response>) -> ClaimOutcome {
        match outcome {
            Ok(response) => ClaimOutcome::Done(response.clone()),
            Err(refusal) if self.on_error == OnError::Release && !refusal.is_reject() => {
                ClaimOutcome::Released
            }
            Err(refusal) => ClaimOutcome::Kept(refusal.error().into()),
        }
    }
}
