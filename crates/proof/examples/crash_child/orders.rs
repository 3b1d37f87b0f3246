//! The orders, and what becomes of each.

/// How many orders there are: two of each kind.
pub(crate) const ORDERS: i64 = 52;

/// What an order is like, one after another.
pub(crate) const KINDS: [&str; 26] = [
    "plain",    // goes well
    "flaky",    // fails at first
    "waiting",  // of the same key, so it waits for the one before
    "doomed",   // can never work
    "mend",     // is rejected until somebody mends billing, then sent again under its id
    "behind",   // of the same key, so it waits for the replay
    "renew",    // is rejected like it, then sent again under a new id
    "void",     // can never work either, and is purged
    "freed",    // of the same key, so it waits for the purge
    "later",    // is not due at first
    "prepared", // is handled in two halves
    "archive",  // goes to a destination that nobody has named
    "once",     // is enqueued twice under one key
    "plain",
    "queued", // is stored, and handled later
    "queued flaky",
    "queued waiting",
    "queued doomed", // stays a dead letter of billing
    "queued mend",   // dies there and is run again there
    "queued behind",
    "called", // is handled later and outside of the database
    "called flaky",
    "called",
    "claimed",       // is claimed, then handled outside of the database
    "claimed flaky", // gives its claim back when it fails
    "claimed kept",  // keeps its claim when it fails, until somebody has looked at it
];

/// Endpoints whose dead letters are replayed.
pub(crate) const MEND: &str = "Mend";
pub(crate) const RENEW: &str = "Renew";
/// The endpoint whose dead letters are purged.
pub(crate) const VOID: &str = "Void";
/// The endpoint that is handled in two halves.
pub(crate) const PREPARE: &str = "Prepare";
/// Handled later.
pub(crate) const QUEUE: &str = "Queue";
/// Handled later; its dead letters are run again.
pub(crate) const QUEUE_MEND: &str = "QueueMend";
/// Handled later, outside of the database.
pub(crate) const CALL: &str = "Call";
/// Claimed first.
pub(crate) const CLAIM: &str = "Claim";
/// Claimed first; the claim is given back after a failure.
pub(crate) const RELEASE: &str = "Release";
/// Claimed first; dead letters are sent again.
pub(crate) const KEEP: &str = "Keep";
/// All others.
pub(crate) const PAY: &str = "Pay";

/// What an order of this number is like.
pub(crate) fn kind(order: i64) -> &'static str {
    KINDS[usize::try_from(order).unwrap_or(0) % KINDS.len()]
}

/// Which orders follow each other: those of one key arrive in their order.
pub(crate) fn key(order: i64) -> Option<String> {
    let round = usize::try_from(order).unwrap_or(0) / KINDS.len();
    match kind(order) {
        "flaky" | "waiting" => Some(format!("customer {round}")),
        "mend" | "behind" => Some(format!("debtor {round}")),
        "void" | "freed" => Some(format!("quitter {round}")),
        "later" => Some(format!("planner {round}")),
        "queued flaky" | "queued waiting" => Some(format!("queued customer {round}")),
        "queued mend" | "queued behind" => Some(format!("queued debtor {round}")),
        _ => None,
    }
}

/// What is called at the receiver.
pub(crate) fn endpoint(order: i64) -> &'static str {
    match kind(order) {
        "mend" => MEND,
        "renew" => RENEW,
        "void" => VOID,
        "prepared" => PREPARE,
        "queued mend" => QUEUE_MEND,
        "claimed" => CLAIM,
        "claimed flaky" => RELEASE,
        "claimed kept" => KEEP,
        queued if queued.starts_with("queued") => QUEUE,
        called if called.starts_with("called") => CALL,
        _ => PAY,
    }
}
