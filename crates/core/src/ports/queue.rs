//! The inbox as a work queue: claimed under leases, handled later, by many workers (IBX §6.2–6.9).

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{ContentHash, Death, HeadPolicy, InboxStatus, InboxStore, MessageKey, Purged, Replayed};
use crate::lifecycle::Reason;
use crate::retry::Policy;
use crate::{Consumer, Endpoint, Error, Message, OrderingKey, Payload, Random, Response, Result, Timestamp};

/// The most messages one claim may take: their payloads are in memory at once.
pub const CLAIM_MAX: usize = 1_000;
/// The longest lease: a worker that died is noticed within this time at the latest.
pub const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A consumer's queue, and by which rules its messages are tried again and die.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Whose.
    pub consumer: Consumer,
    /// How often and when a message is tried again.
    pub retry: Policy,
    /// What happens to an ordering key when its head dies or expires (S12).
    pub head_policy: HeadPolicy,
}

impl Queue {
    /// The queue of this consumer: ten attempts, `min(2^n s, 60 s)` between them (IBX-081, IBX-084).
    #[must_use]
    pub fn new(consumer: Consumer) -> Self {
        let attempts = std::num::NonZeroU32::MIN.saturating_add(9);
        let retry = Policy::default()
            .attempts_max(attempts)
            .base(Duration::from_secs(2))
            .max(Duration::from_secs(60))
            .jitter(Duration::ZERO);
        Self { consumer, retry, head_policy: HeadPolicy::default() }
    }
}

/// A worker's identity: only who has claimed a message can settle it. Never nil (IBX-043, IBX-130).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerToken(Uuid);

impl OwnerToken {
    /// Wraps an identity.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if it is the nil UUID, which everybody could have.
    pub fn new(uuid: Uuid) -> Result<Self> {
        if uuid.is_nil() {
            return Err(Error::invalid("the owner token is the nil UUID: give each worker one of its own"));
        }
        Ok(Self(uuid))
    }

    /// A new identity.
    #[must_use]
    pub fn mint(random: &dyn Random) -> Self {
        let wide = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        Self(uuid::Builder::from_random_bytes(wide.to_be_bytes()).into_uuid())
    }

    /// The bytes, as databases keep them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message to be queued.
#[derive(Clone, Debug)]
pub struct Work {
    /// The message: its endpoint is the topic, its `available` the due time, its source part of the key.
    pub message: Message,
    /// Hash of its content; SHA-256 of the payload unless given.
    pub hash: Option<ContentHash>,
}

/// What became of a message that was to be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// It is queued.
    New,
    /// It was queued before, and nobody is handling it: it has the new topic, content and due time (IBX-029).
    Updated,
    /// A worker has it right now, so it was left alone.
    Leased,
    /// It was dead, and stays so until it is replayed; it has the new topic, content and due time (IBX-029).
    Dead,
    /// Its effect has happened; nothing was changed (IBX-028).
    Done,
}

/// Asks for messages.
#[derive(Clone, Debug)]
pub struct Claim {
    owner: OwnerToken,
    lease: Duration,
    limit: usize,
}

impl Claim {
    /// Up to `limit` messages for `owner`, for as long as `lease`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the lease is zero or longer than [`LEASE_MAX`], or the limit zero or
    /// more than [`CLAIM_MAX`].
    pub fn new(owner: OwnerToken, lease: Duration, limit: usize) -> Result<Self> {
        check_lease(lease)?;
        if limit == 0 || limit > CLAIM_MAX {
            return Err(Error::invalid(format!("a claim of {limit} messages: ask for 1 to {CLAIM_MAX}")));
        }
        Ok(Self { owner, lease, limit })
    }

    /// Who claims.
    #[must_use]
    pub fn owner(&self) -> OwnerToken {
        self.owner
    }

    /// For how long.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// How many at most.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }
}

/// Refuses a lease that is over at once or as good as never.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid), naming the limit.
pub fn check_lease(lease: Duration) -> Result<()> {
    if lease.is_zero() || lease > LEASE_MAX {
        return Err(Error::invalid(format!(
            "a lease of {lease:?}: give it more than nothing and at most {LEASE_MAX:?}"
        )));
    }
    Ok(())
}

/// Refuses a delay of nothing, which would make a failing message spin (IBX-058).
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid).
pub fn check_delay(delay: Option<Duration>) -> Result<()> {
    if delay.is_some_and(|delay| delay.is_zero()) {
        return Err(Error::invalid("a delay of zero: leave it out for the default back-off"));
    }
    Ok(())
}

/// The right to settle a message, as long as nobody else has claimed it since: each claim has a higher token (S5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkLease {
    /// Which message.
    pub key: MessageKey,
    /// Which claim of it.
    pub token: u64,
    /// Where the store finds it. A wrong place is as good as a wrong token.
    pub place: i64,
}

/// A message that was claimed.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// What settles it.
    pub lease: WorkLease,
    /// The message.
    pub message: Arc<Message>,
    /// Attempts that have failed.
    pub attempts: u32,
    /// When it was first seen.
    pub first_seen: Timestamp,
    /// When it was last seen.
    pub last_seen: Timestamp,
    /// What went wrong the last time.
    pub last_error: Option<String>,
}

/// All there is to know about a message (IBX §5.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkRecord {
    /// Which message.
    pub key: MessageKey,
    /// Where it stands.
    pub status: InboxStatus,
    /// Its topic; `None` if it was only noticed.
    pub topic: Option<Endpoint>,
    /// Its content, as long as it is not done: a done message's is not kept.
    pub payload: Option<Payload>,
    /// Hash of its content.
    pub hash: Option<ContentHash>,
    /// Attempts that have failed.
    pub attempts: u32,
    /// When it was first seen.
    pub first_seen: Timestamp,
    /// When it was last seen.
    pub last_seen: Timestamp,
    /// Not before this time.
    pub due: Option<Timestamp>,
    /// When it can be claimed; `None` if it waits behind another of its key, or is over.
    pub ready: Option<Timestamp>,
    /// Who has it, and until when.
    pub lease: Option<(Vec<u8>, Timestamp)>,
    /// What went wrong the last time.
    pub last_error: Option<String>,
    /// Why it died.
    pub reason: Option<Reason>,
}

/// A claimed message with what handles it, in one transaction with its settlement.
#[derive(Debug)]
pub struct Job<H> {
    /// What settles it.
    pub lease: WorkLease,
    /// The message.
    pub message: Arc<Message>,
    /// What handles it.
    pub handler: H,
}

/// What became of a claimed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handled {
    /// Its effect is committed.
    Done(Response),
    /// It failed and will be tried again.
    Retried {
        /// What went wrong.
        error: String,
    },
    /// It is a dead letter now.
    Died {
        /// What went wrong.
        error: String,
    },
    /// Somebody else has claimed it since: nothing was written.
    LeaseLost,
}

/// What an operator does with the dead letters of an inbox.
#[derive(Clone, Debug, Default)]
pub struct WorkFilter {
    /// Only this message's source.
    pub source: Option<crate::Source>,
    /// Only this message.
    pub id: Option<crate::MessageId>,
    /// Only this topic.
    pub topic: Option<Endpoint>,
    /// Only this reason.
    pub reason: Option<Reason>,
    /// Only what died before this time.
    pub died_before: Option<Timestamp>,
}

/// A dead letter of an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadWork {
    /// Its place among the dead letters, for the next page.
    pub place: i64,
    /// Its source, as stored.
    pub source: String,
    /// Its id, as stored.
    pub id: String,
    /// Its topic, as stored.
    pub topic: String,
    /// Its ordering key, as stored.
    pub ordering_key: Option<String>,
    /// Why it died.
    pub reason: Reason,
    /// What went wrong last.
    pub error: Option<String>,
    /// Attempts that have failed.
    pub attempts: u32,
    /// When it died.
    pub died: Timestamp,
    /// Whether its ordering key waits for it.
    pub blocks_key: bool,
}

/// Some of the dead letters that match a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadWorkPage {
    /// The dead letters.
    pub letters: Vec<DeadWork>,
    /// Whether more match behind them.
    pub more: bool,
}

impl DeadWorkPage {
    /// The deaths that are listed.
    #[must_use]
    pub fn deaths(&self) -> Vec<Death<i64>> {
        self.letters.iter().map(|letter| (letter.place, letter.died)).collect()
    }
}

/// A queue on a store.
pub trait QueueStore: InboxStore {
    /// What the log calls this store: with several in one process, its lines are told apart by it (IBX-113).
    fn store_name(&self) -> String;

    /// Queues a message, durable when this returns. One that is known keeps its place (IBX-014, IBX-027…IBX-029).
    fn enqueue_work(&self, queue: &Queue, work: &Work) -> impl Future<Output = Result<Enqueued>> + Send;

    /// Leases messages that are due, the longest due first; of an ordering key only its head (S12). What is past its
    /// time to live, or was claimed too often by workers that died, becomes a dead letter instead.
    fn claim(&self, queue: &Queue, claim: &Claim) -> impl Future<Output = Result<Vec<Claimed>>> + Send;

    /// Marks messages as done. Leases that are not current are passed over (IBX-046). Returns how many were.
    fn ack(
        &self,
        queue: &Queue,
        owner: OwnerToken,
        leases: &[WorkLease],
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Gives messages back after a failed attempt: tried again after `delay`, or after the back-off; dead after the
    /// last attempt (IBX-050…IBX-059). Returns how many were.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if `delay` is zero.
    fn abandon(
        &self,
        queue: &Queue,
        owner: OwnerToken,
        leases: &[WorkLease],
        error: Option<&str>,
        delay: Option<Duration>,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Gives messages back that nobody has tried: nothing is charged, and they are ready at once.
    fn give_back(
        &self,
        queue: &Queue,
        owner: OwnerToken,
        leases: &[WorkLease],
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Makes messages dead letters (IBX-060…IBX-067). Returns how many were.
    fn fail(
        &self,
        queue: &Queue,
        owner: OwnerToken,
        leases: &[WorkLease],
        error: &str,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Prolongs leases; returns those that are still held.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if `lease` is zero or too long.
    fn renew(
        &self,
        queue: &Queue,
        owner: OwnerToken,
        leases: &[WorkLease],
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<WorkLease>>> + Send;

    /// Takes leases back that are over: each counts as a failed attempt, because a worker died or stood still (S6).
    /// Returns how many, at most `limit`.
    fn reap(&self, queue: &Queue, limit: usize) -> impl Future<Output = Result<u64>> + Send;

    /// What is known about a message.
    fn work(
        &self,
        consumer: &Consumer,
        key: &MessageKey,
    ) -> impl Future<Output = Result<Option<WorkRecord>>> + Send;

    /// Handles claimed messages: each handler's effects and the fenced *done* in one transaction, failures settled
    /// with them. Answers in order.
    fn handle(
        &self,
        queue: &Queue,
        owner: OwnerToken,
        jobs: Vec<Job<Self::Handler>>,
    ) -> impl Future<Output = Result<Vec<Handled>>> + Send;

    /// Completes when something may have been queued since `seen`; returns the next value to wait with.
    fn work_changed(&self, seen: u64) -> impl Future<Output = u64> + Send;

    /// How long until something can be claimed, if anything waits at all.
    fn next_work(&self, consumer: &Consumer) -> impl Future<Output = Result<Option<Duration>>> + Send;

    /// Dead letters that match, oldest first, after `after`, at most `limit`.
    fn dead_work(
        &self,
        consumer: &Consumer,
        filter: &WorkFilter,
        after: Option<&DeadWork>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<DeadWork>>> + Send;

    /// How many dead letters match; `limit` means that many or more. What a replay or purge would come to.
    fn dead_work_count(
        &self,
        consumer: &Consumer,
        filter: &WorkFilter,
        limit: usize,
    ) -> impl Future<Output = Result<u64>> + Send {
        async move { Ok(self.dead_work(consumer, filter, None, limit).await?.len() as u64) }
    }

    /// Runs these deaths again, in one transaction: attempts start anew, expiry is lifted, the place in the key is kept.
    /// Passes over a message that is not dead, or has died again since. Returns how many run again.
    fn replay_work_deaths(
        &self,
        queue: &Queue,
        deaths: Vec<Death<i64>>,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Removes these dead letters for good, in one transaction; a duplicate that arrives later is still recognised.
    /// Passes over a message that is not dead, or has died again since. Returns how many are gone.
    fn purge_work_deaths(
        &self,
        queue: &Queue,
        deaths: Vec<Death<i64>>,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// One page of the dead letters that match, after `after`.
    fn dead_work_page(
        &self,
        consumer: &Consumer,
        filter: &WorkFilter,
        after: Option<&DeadWork>,
        limit: usize,
    ) -> impl Future<Output = Result<DeadWorkPage>> + Send {
        async move {
            let mut letters = self.dead_work(consumer, filter, after, limit.saturating_add(1)).await?;
            let more = letters.len() > limit;
            letters.truncate(limit);
            Ok(DeadWorkPage { letters, more })
        }
    }

    /// Runs up to `limit` matching dead letters again, as [`replay_work_deaths`](Self::replay_work_deaths) does.
    fn replay_work(
        &self,
        queue: &Queue,
        filter: &WorkFilter,
        limit: usize,
    ) -> impl Future<Output = Result<Replayed>> + Send {
        async move {
            let page = self.dead_work_page(&queue.consumer, filter, None, limit).await?;
            let replayed = self.replay_work_deaths(queue, page.deaths()).await?;
            Ok(Replayed { replayed, more: page.more })
        }
    }

    /// Removes up to `limit` matching dead letters, as [`purge_work_deaths`](Self::purge_work_deaths) does.
    fn purge_work(
        &self,
        queue: &Queue,
        filter: &WorkFilter,
        limit: usize,
    ) -> impl Future<Output = Result<Purged>> + Send {
        async move {
            let page = self.dead_work_page(&queue.consumer, filter, None, limit).await?;
            let purged = self.purge_work_deaths(queue, page.deaths()).await?;
            Ok(Purged { purged, more: page.more })
        }
    }

    /// Lets a blocked key step over its dead messages. Returns whether it was blocked.
    fn release_work_key(
        &self,
        queue: &Queue,
        source: &crate::Source,
        key: &OrderingKey,
    ) -> impl Future<Output = Result<bool>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Seven;
    impl Random for Seven {
        fn next_u64(&self) -> u64 {
            7
        }
    }

    #[test]
    fn ibx_043_ibx_130_an_owner_is_somebody() {
        assert!(OwnerToken::new(Uuid::nil()).is_err());
        let owner = OwnerToken::mint(&Seven);
        assert_eq!(OwnerToken::new(owner.0).unwrap(), owner);
    }

    #[test]
    fn ibx_040_ibx_041_claims_have_limits() {
        let owner = OwnerToken::mint(&Seven);
        let second = Duration::from_secs(1);
        assert!(Claim::new(owner, second, 1).is_ok());
        assert!(Claim::new(owner, Duration::ZERO, 1).is_err());
        assert!(Claim::new(owner, LEASE_MAX + second, 1).is_err());
        assert!(Claim::new(owner, second, 0).is_err());
        assert!(Claim::new(owner, second, CLAIM_MAX + 1).is_err());
    }

    #[test]
    fn ibx_081_ibx_084_the_default_schedule() {
        let queue = Queue::new(Consumer::new("billing").unwrap());
        let delay = |attempts| queue.retry.delay_after(attempts, &Seven).map(|delay| delay.as_secs());
        let delays: Vec<_> = (1..=10).map(delay).collect();
        let expected = [2, 4, 8, 16, 32, 60, 60, 60, 60].map(Some);
        assert_eq!(delays[..9], expected);
        assert_eq!(delays[9], None, "the tenth attempt is the last");
    }
}
