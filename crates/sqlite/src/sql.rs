//! The statements: one file each under `sql/`, loaded with the table prefix in its place.

use std::sync::LazyLock;

use twobox_core::{Error, Result, mutant};

/// Marks the place of the table prefix. A comment, so that the files run as they stand with the empty one.
const MARK: &str = "/*p*/";

/// Longest table prefix.
const PREFIX_CHARS_MAX: usize = 30;

/// A validated table prefix. Empty by default; letters, digits and `_`, not starting with a digit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Prefix(String);

impl Prefix {
    /// Checks a prefix.
    ///
    /// # Errors
    /// [`Invalid`](twobox_core::ErrorKind::Invalid) if it could not stand in a table name, or would make one
    /// that SQLite reserves.
    pub fn new(prefix: &str) -> Result<Self> {
        let legal =
            |(at, c): (usize, char)| c == '_' || c.is_ascii_lowercase() || (at > 0 && c.is_ascii_digit());
        if prefix.len() > PREFIX_CHARS_MAX || !prefix.chars().enumerate().all(legal) {
            return Err(Error::invalid(format!(
                "table prefix {prefix:?} is not at most {PREFIX_CHARS_MAX} of a-z, 0-9, '_' (no digit first)"
            )));
        }
        if prefix.starts_with("sqlite_") {
            return Err(Error::invalid(format!("table prefix {prefix:?} is reserved by SQLite")));
        }
        Ok(Self(prefix.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn apply(&self, sql: &str) -> String {
        sql.replace(MARK, &self.0)
    }
}

/// A statement without its comments and line breaks: statements are found in their cache by their text.
fn terse(sql: &str) -> String {
    let lines = sql.lines().map(|line| line.split("--").next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The statement, with the bug of an armed mutant.
fn mutated(path: &str, sql: String) -> String {
    match path {
        _ if path.starts_with("queue/") && mutant!(QueueNoFence) => sql
            .replace("q.lease_token = ?2 AND q.lease_owner = ?3", "?2 IS NOT NULL AND ?3 IS NOT NULL")
            .replace("lease_token = ?2 AND lease_owner = ?3", "?2 IS NOT NULL AND ?3 IS NOT NULL"),
        _ if path.starts_with("outbox/") && mutant!(NoFence) => {
            sql.replace("lease_token = ?2", "?2 IS NOT NULL")
        }
        "sweep/trim_over.sql" if mutant!(PurgeUnfinished) => sql.replace(
            "(w.state = 'Sent' OR w.replayed_as IS NOT NULL) AND w.finished_at <= ?1",
            "?1 IS NOT NULL",
        ),
        "inbox/reclaim.sql" if mutant!(ReplayRunsDone) => sql.replace(" AND status = 'Dead'", ""),
        _ => sql,
    }
}

/// The migrations in their order; a database's version is how many of them it has seen.
pub(crate) const MIGRATIONS: [(&str, &str); 1] =
    [("0001_create_boxes", include_str!("../sql/migrations/0001_create_boxes.sql"))];

macro_rules! statements {
    ($($name:ident = $path:literal;)*) => {
        /// Every statement with its table prefix in place.
        #[derive(Debug)]
        pub(crate) struct Sql {
            $(pub(crate) $name: String,)*
        }

        impl Sql {
            pub(crate) fn new(prefix: &Prefix) -> Self {
                let text = |path, terse: &str| prefix.apply(&mutated(path, terse.into()));
                Self { $($name: {
                    static TERSE: LazyLock<String> =
                        LazyLock::new(|| terse(include_str!(concat!("../sql/", $path))));
                    text($path, &TERSE)
                },)* }
            }

            /// Path and text of every statement.
            #[cfg(test)]
            pub(crate) fn all(&self) -> Vec<(&'static str, &str)> {
                vec![$(($path, self.$name.as_str()),)*]
            }
        }
    };
}

statements! {
    announced = "outbox/announced.sql";
    any_held = "outbox/any_held.sql";
    append = "outbox/append.sql";
    attempts = "outbox/attempts.sql";
    blocked_keys = "outbox/blocked_keys.sql";
    claim = "inbox/claim.sql";
    claim_ahead = "inbox/claim_ahead.sql";
    count_behind = "outbox/count_behind.sql";
    count_dead = "outbox/count_dead.sql";
    count_failed = "outbox/count_failed.sql";
    dead = "inbox/dead.sql";
    dead_by_id = "outbox/dead_by_id.sql";
    dead_letters = "outbox/dead_letters.sql";
    demote = "outbox/demote.sql";
    discover_lanes = "outbox/discover_lanes.sql";
    done = "inbox/done.sql";
    drop_attempts = "sweep/drop_attempts.sql";
    drop_receipt = "sweep/drop_receipt.sql";
    due = "outbox/due.sql";
    due_expired = "outbox/due_expired.sql";
    due_too_far = "outbox/due_too_far.sql";
    fail_key = "outbox/fail_key.sql";
    fence_lane = "outbox/fence_lane.sql";
    followers = "outbox/followers.sql";
    has_scheduled_due = "outbox/has_scheduled_due.sql";
    free_lanes = "outbox/free_lanes.sql";
    held_lanes = "outbox/held_lanes.sql";
    hold_lane = "outbox/hold_lane.sql";
    inbox_get = "inbox/get.sql";
    inbox_has_triggers = "inbox/has_triggers.sql";
    insert_attempt = "outbox/insert_attempt.sql";
    insert_lane = "outbox/insert_lane.sql";
    insert_receipt = "outbox/insert_receipt.sql";
    join_waiting = "outbox/join_waiting.sql";
    key_head = "outbox/key_head.sql";
    key_held = "outbox/key_held.sql";
    lane_destination = "outbox/lane_destination.sql";
    lanes = "outbox/lanes.sql";
    log_end = "outbox/log_end.sql";
    leave_key = "outbox/leave_key.sql";
    mark_replayed = "outbox/mark_replayed.sql";
    mark_sending = "outbox/mark_sending.sql";
    meet_inbox = "outbox/meet_inbox.sql";
    meta_delete = "meta/delete.sql";
    meta_get = "meta/get.sql";
    meta_put = "meta/put.sql";
    move_to_waiting = "outbox/move_to_waiting.sql";
    next_due = "outbox/next_due.sql";
    next_joined = "outbox/next_joined.sql";
    old_receipt = "sweep/old_receipt.sql";
    once_delete = "outbox/once_delete.sql";
    once_get = "outbox/once_get.sql";
    once_insert = "outbox/once_insert.sql";
    paused_lanes = "outbox/paused_lanes.sql";
    peer_count = "inbox/peer_count.sql";
    peer_get = "inbox/peer_get.sql";
    peer_insert = "inbox/peer_insert.sql";
    promote = "outbox/promote.sql";
    purge = "sweep/purge.sql";
    purge_bound = "sweep/purge_bound.sql";
    purge_dead = "outbox/purge_dead.sql";
    purge_log = "outbox/purge_log.sql";
    raise_watermark = "sweep/raise_watermark.sql";
    read_log = "outbox/read_log.sql";
    reclaim = "inbox/reclaim.sql";
    redate_receipts = "sweep/redate_receipts.sql";
    register_lane = "outbox/register_lane.sql";
    release_key = "outbox/release_key.sql";
    release_lane = "outbox/release_lane.sql";
    owners = "outbox/owners.sql";
    register_all = "outbox/register_all.sql";
    renew_lanes = "outbox/renew_lanes.sql";
    replay_new_id = "outbox/replay_new_id.sql";
    replay_same_id = "outbox/replay_same_id.sql";
    scheduled_due = "outbox/scheduled_due.sql";
    resend_first = "outbox/resend_first.sql";
    resend_lane = "outbox/resend_lane.sql";
    resend_log = "outbox/resend_log.sql";
    resend_page = "outbox/resend_page.sql";
    resend_receipts = "outbox/resend_receipts.sql";
    resend_waiting = "outbox/resend_waiting.sql";
    note_trimmed = "sweep/note_trimmed.sql";
    trimmed = "outbox/trimmed.sql";
    settle_lane = "outbox/settle_lane.sql";
    settle_waiting = "outbox/settle_waiting.sql";
    shorten_receipt = "sweep/shorten_receipt.sql";
    still_done = "inbox/still_done.sql";
    still_done_ahead = "inbox/still_done_ahead.sql";
    take_back = "inbox/take_back.sql";
    sweep_audit = "sweep/audit.sql";
    sweep_lanes = "sweep/lanes.sql";
    sweep_once = "sweep/once.sql";
    sweep_peers = "sweep/peers.sql";
    take_lane = "outbox/take_lane.sql";
    take_unrouted = "outbox/take_unrouted.sql";
    trim_attempts = "outbox/trim_attempts.sql";
    trim_log = "sweep/trim_log.sql";
    trim_over = "sweep/trim_over.sql";
    waiting_key = "outbox/waiting_key.sql";
    waiting_lane = "outbox/waiting_lane.sql";
    unannounced = "outbox/unannounced.sql";
    inbox_claimed = "inbox/claimed.sql";
    inbox_forget_outboxes = "inbox/forget_outboxes.sql";
    inbox_meet_outbox = "inbox/meet_outbox.sql";
    inbox_met_outboxes = "inbox/met_outboxes.sql";
    inbox_other_outbox = "inbox/other_outbox.sql";
    inbox_peer_outbox = "inbox/peer_outbox.sql";
    inbox_notice = "inbox/notice.sql";
    inbox_touch = "inbox/touch.sql";
    inbox_take = "inbox/take.sql";
    inbox_release = "inbox/release.sql";
    inbox_unfinished = "inbox/unfinished.sql";
    inbox_release_unfinished = "inbox/release_unfinished.sql";
    queue_bury = "queue/bury.sql";
    queue_bury_row = "queue/bury_row.sql";
    queue_dead = "queue/dead.sql";
    queue_dead_by_id = "queue/dead_by_id.sql";
    queue_death = "queue/death.sql";
    queue_demote = "queue/demote.sql";
    queue_forget_row = "queue/forget_row.sql";
    queue_drop = "queue/drop.sql";
    queue_finish = "queue/finish.sql";
    queue_finish_row = "queue/finish_row.sql";
    queue_forget_handler = "queue/forget_handler.sql";
    queue_get = "queue/get.sql";
    queue_held = "queue/held.sql";
    queue_insert = "queue/insert.sql";
    queue_insert_row = "queue/insert_row.sql";
    queue_join_behind = "queue/join_behind.sql";
    queue_joined = "queue/joined.sql";
    queue_key_head = "queue/key_head.sql";
    queue_key_last = "queue/key_last.sql";
    queue_key_open = "queue/key_open.sql";
    queue_key_step_over = "queue/key_step_over.sql";
    queue_known = "queue/known.sql";
    queue_lease = "queue/lease.sql";
    queue_next = "queue/next.sql";
    queue_overdue = "queue/overdue.sql";
    queue_promote = "queue/promote.sql";
    queue_ready = "queue/ready.sql";
    queue_renew = "queue/renew.sql";
    queue_renew_row = "queue/renew_row.sql";
    queue_reopen = "queue/reopen.sql";
    queue_replay = "queue/replay.sql";
    queue_replay_row = "queue/replay_row.sql";
    queue_retry = "queue/retry.sql";
    queue_store_dead = "queue/store_dead.sql";
    queue_too_far = "queue/too_far.sql";
    queue_update = "queue/update.sql";
    ops_audit_begin = "ops/audit_begin.sql";
    ops_audit_end = "ops/audit_end.sql";
    ops_audit_rows = "ops/audit_rows.sql";
    ops_blocked_work = "ops/blocked_work.sql";
    ops_dead_letters = "ops/dead_letters.sql";
    ops_dead_work = "ops/dead_work.sql";
    ops_inbox_bounds = "ops/inbox_bounds.sql";
    ops_inbox_dates = "ops/inbox_dates.sql";
    ops_inbox_detail = "ops/inbox_detail.sql";
    ops_inbox_of_id = "ops/inbox_of_id.sql";
    ops_inbox_rest = "ops/inbox_rest.sql";
    ops_inbox_rows = "ops/inbox_rows.sql";
    ops_inbox_rows_died = "ops/inbox_rows_died.sql";
    ops_inbox_rows_noticed = "ops/inbox_rows_noticed.sql";
    ops_inbox_rows_open = "ops/inbox_rows_open.sql";
    ops_inbox_rows_queued = "ops/inbox_rows_queued.sql";
    ops_log_bounds = "ops/log_bounds.sql";
    ops_log_dates = "ops/log_dates.sql";
    ops_log_next = "ops/log_next.sql";
    ops_log_tail = "ops/log_tail.sql";
    ops_oldest_waiting = "ops/oldest_waiting.sql";
    ops_outbox_of_id = "ops/outbox_of_id.sql";
    ops_outbox_row = "ops/outbox_row.sql";
    ops_outbox_rows = "ops/outbox_rows.sql";
    ops_outbox_rows_of = "ops/outbox_rows_of.sql";
    ops_outbox_rows_open = "ops/outbox_rows_open.sql";
    ops_pause_lane = "ops/pause_lane.sql";
    ops_peers = "ops/peers.sql";
    ops_receipt = "ops/receipt.sql";
    ops_resume_lane = "ops/resume_lane.sql";
    ops_work_behind = "ops/work_behind.sql";
    insert_restore = "backup/insert_restore.sql";
    respond = "inbox/respond.sql";
    restores = "backup/restores.sql";
    verify_cursor = "verify/cursor.sql";
    verify_inbox_done = "verify/inbox_done.sql";
    verify_inbox_peer = "verify/inbox_peer.sql";
    verify_lane_counters = "verify/lane_counters.sql";
    verify_log_end = "verify/log_end.sql";
    verify_peer_counters = "verify/peer_counters.sql";
    verify_receipts = "verify/receipts.sql";
    verify_waiting_ahead = "verify/waiting_ahead.sql";
    verify_waiting_heads = "verify/waiting_heads.sql";
    verify_waiting_joined = "verify/waiting_joined.sql";
    verify_waiting_lane = "verify/waiting_lane.sql";
    verify_waiting_log = "verify/waiting_log.sql";
    verify_waiting_stuck = "verify/waiting_stuck.sql";
    verify_watermark = "verify/watermark.sql";
    verify_work_consumer = "verify/work_consumer.sql";
    verify_work_done = "verify/work_done.sql";
    verify_work_heads = "verify/work_heads.sql";
    verify_work_listed = "verify/work_listed.sql";
    verify_work_lost = "verify/work_lost.sql";
    verify_work_row = "verify/work_row.sql";
    verify_work_stuck = "verify/work_stuck.sql";
}
