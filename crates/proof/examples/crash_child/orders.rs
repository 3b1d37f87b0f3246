//! The orders, and what becomes of each.

/// How many orders there are.
pub(crate) const ORDERS: i64 = 28;

/// What an order is like, one after another.
pub(crate) const KINDS: [&str; 14] = [
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
];

/// Endpoints whose dead letters are replayed.
pub(crate) const MEND: &str = "Mend";
pub(crate) const RENEW: &str = "Renew";
/// The endpoint whose dead letters are purged.
pub(crate) const VOID: &str = "Void";
/// The endpoint that is handled in two halves.
pub(crate) const PREPARE: &str = "Prepare";
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
        _ => PAY,
    }
}
