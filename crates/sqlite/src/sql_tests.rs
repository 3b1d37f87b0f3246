//! Statement files rot without a check: each is prepared on a real database, none is unused, and the hot ones
//! use their indexes.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::Connection;

use crate::Prefix;
use crate::sql::{MIGRATIONS, Sql};

fn database(prefix: &Prefix) -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    for (_, sql) in MIGRATIONS {
        connection.execute_batch(&prefix.apply(sql)).unwrap();
    }
    connection
}

#[test]
fn gp_1_every_statement_prepares_with_any_prefix() {
    for prefix in ["", "billing_"] {
        let prefix = Prefix::new(prefix).unwrap();
        let connection = database(&prefix);
        for (path, sql) in Sql::new(&prefix).all() {
            connection.prepare(sql).unwrap_or_else(|error| panic!("{path} with {prefix:?}: {error}"));
        }
    }
}

#[test]
fn every_statement_file_is_used() {
    let sql = Sql::new(&Prefix::default());
    let used: BTreeSet<String> = sql.all().iter().map(|(path, _)| (*path).to_owned()).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let mut files = BTreeSet::new();
    for folder in ["outbox", "inbox", "queue", "ops", "sweep", "meta", "backup", "verify"] {
        for file in std::fs::read_dir(root.join(folder)).unwrap() {
            files.insert(format!("{folder}/{}", file.unwrap().file_name().to_str().unwrap()));
        }
    }
    assert_eq!(files, used);
    assert_eq!(std::fs::read_dir(root.join("migrations")).unwrap().count(), MIGRATIONS.len());
}

#[test]
fn prefixes_that_could_break_a_statement_are_refused() {
    for bad in ["1abc", "a b", "a;", "A_", "sqlite_", "é", "a\"", &"x".repeat(31)] {
        assert!(Prefix::new(bad).is_err(), "{bad:?}");
    }
    assert!(Prefix::new("_mod2_").is_ok());
}

/// The plan of a statement as one text.
fn plan(connection: &Connection, sql: &str) -> String {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let count = statement.parameter_count();
    let nulls = vec![rusqlite::types::Null; count];
    let rows = statement.query_map(rusqlite::params_from_iter(nulls), |row| row.get::<_, String>(3)).unwrap();
    rows.map(Result::unwrap).collect::<Vec<_>>().join("; ")
}

#[test]
fn l8_hot_statements_use_their_indexes() {
    let connection = database(&Prefix::default());
    let sql = Sql::new(&Prefix::default());
    let expected = [
        (&sql.read_log, "SEARCH outbox_log USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (&sql.settle_lane, "SEARCH outbox_lanes USING INTEGER PRIMARY KEY (rowid=?)"),
        (&sql.due, "outbox_waiting_retry (lane_id=? AND next_attempt_at>? AND next_attempt_at<?)"),
        (&sql.due_expired, "outbox_waiting_expiry (lane_id=? AND expires_at<?)"),
        (&sql.scheduled_due, "outbox_waiting_scheduled (lane_id=? AND due_at<?)"),
        (&sql.key_head, "outbox_waiting_key (lane_id=? AND ordering_key=?)"),
        (&sql.key_held, "outbox_waiting_key (lane_id=? AND ordering_key=?)"),
        (&sql.demote, "outbox_waiting_heads (lane_id=? AND ordering_key=?)"),
        (&sql.followers, "outbox_waiting_key (lane_id=? AND ordering_key=? AND joined>?)"),
        (&sql.unannounced, "outbox_waiting_unannounced (source=? AND seq>?)"),
        (&sql.dead_letters, "outbox_waiting_dead (finished_at>? AND finished_at<?)"),
        (&sql.dead_by_id, "outbox_waiting_message_id (message_id=? AND rowid>?)"),
        (&sql.count_dead, "outbox_waiting_dead (finished_at<?)"),
        (&sql.purge_dead, "SEARCH outbox_waiting USING INTEGER PRIMARY KEY (rowid=?)"),
        (&sql.purge_log, "SEARCH outbox_log USING INTEGER PRIMARY KEY (rowid=?)"),
        (&sql.replay_same_id, "SEARCH outbox_waiting USING INTEGER PRIMARY KEY (rowid=?)"),
        (&sql.replay_new_id, "SEARCH outbox_waiting USING INTEGER PRIMARY KEY (rowid=?)"),
        (&sql.inbox_get, "(peer_id=? AND message_id=?)"),
        (&sql.done, "INTEGER PRIMARY KEY (rowid=?)"),
        (&sql.respond, "INTEGER PRIMARY KEY (rowid=?)"),
        (&sql.still_done, "INTEGER PRIMARY KEY (rowid=?)"),
        (&sql.still_done_ahead, "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (&sql.take_back, "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (&sql.purge_bound, "inbox_purgeable (peer_id=? AND available_at<?)"),
        (&sql.purge, "inbox_purgeable (peer_id=? AND available_at<?)"),
        (&sql.trim_log, "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (&sql.trim_over, "outbox_waiting_over (finished_at<?)"),
        (&sql.sweep_once, "outbox_once_created (created_at<?)"),
        (&sql.note_trimmed, "SEARCH outbox_lanes USING INTEGER PRIMARY KEY (rowid=?)"),
        (&sql.resend_receipts, "SEARCH outbox_receipts USING PRIMARY KEY (lane_id=? AND last_seq<?)"),
        (&sql.resend_first, "outbox_waiting_over (finished_at>?)"),
        (&sql.resend_log, "USING INTEGER PRIMARY KEY (rowid=?)"),
        (&sql.resend_waiting, "SEARCH outbox_waiting USING INTEGER PRIMARY KEY (rowid=?)"),
        (&sql.resend_lane, "SEARCH outbox_lanes USING INTEGER PRIMARY KEY (rowid>?)"),
        (&sql.meet_inbox, "SEARCH outbox_lanes USING INTEGER PRIMARY KEY (rowid=?)"),
        (&sql.inbox_other_outbox, "SEARCH inbox_outboxes USING PRIMARY KEY (peer_id=?)"),
        (&sql.inbox_peer_outbox, "SEARCH inbox_peers USING INTEGER PRIMARY KEY (rowid=?)"),
        (&sql.old_receipt, "SEARCH outbox_receipts USING PRIMARY KEY (lane_id=?)"),
        (&sql.redate_receipts, "SEARCH outbox_receipts USING PRIMARY KEY (lane_id=? AND last_seq=?)"),
    ];
    for (sql, wanted) in expected {
        let plan = plan(&connection, sql);
        assert!(plan.contains(wanted), "{plan}\n of {sql}");
        assert!(!plan.contains("SCAN outbox_") && !plan.contains("SCAN inbox"), "{plan}\n of {sql}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}\n of {sql}");
    }
}

/// IBX-122, IBX-125: what workers run all the time costs the same however much was done before.
#[test]
fn l8_ibx_122_ibx_125_statements_of_the_queue_use_their_indexes() {
    let connection = database(&Prefix::default());
    let sql = Sql::new(&Prefix::default());
    const ROW: &str = "USING INTEGER PRIMARY KEY (rowid=?)";
    const KEY: &str = "inbox_queue_key (peer_id=? AND ordering_key=?";
    const NATURAL_KEY: &str = "(peer_id=? AND message_id=?)";
    let expected = [
        (&sql.queue_ready, "inbox_queue_ready (consumer=? AND scheduled=? AND ready_at<?)"),
        (&sql.queue_next, "inbox_queue_ready (consumer=? AND scheduled=?"),
        (&sql.queue_too_far, "inbox_queue_ready (consumer=? AND scheduled=? AND ready_at>?)"),
        (&sql.queue_overdue, "inbox_queue_leased (consumer=? AND lease_until<?)"),
        (&sql.queue_overdue, "inbox_queue_leased (consumer=? AND lease_until>?)"),
        (&sql.queue_lease, ROW),
        (&sql.queue_held, ROW),
        (&sql.queue_renew, ROW),
        (&sql.queue_retry, ROW),
        (&sql.queue_finish, ROW),
        (&sql.queue_finish_row, ROW),
        (&sql.queue_bury, ROW),
        (&sql.queue_bury_row, ROW),
        (&sql.queue_update, ROW),
        (&sql.queue_renew_row, ROW),
        (&sql.queue_reopen, ROW),
        (&sql.queue_promote, ROW),
        (&sql.queue_demote, ROW),
        (&sql.queue_drop, ROW),
        (&sql.queue_replay, ROW),
        (&sql.queue_join_behind, ROW),
        (&sql.queue_joined, ROW),
        (&sql.queue_key_head, KEY),
        (&sql.queue_key_last, KEY),
        (&sql.queue_key_open, KEY),
        (&sql.queue_key_step_over, KEY),
        (&sql.queue_known, NATURAL_KEY),
        (&sql.queue_get, NATURAL_KEY),
        (&sql.inbox_release, NATURAL_KEY),
        (&sql.inbox_take, ROW),
        (&sql.inbox_touch, ROW),
        (&sql.queue_dead, "inbox_letters (processed_at>? AND processed_at<?)"),
        (&sql.queue_dead_by_id, NATURAL_KEY),
        (&sql.queue_death, ROW),
        (&sql.inbox_unfinished, "inbox_unfinished (peer_id=? AND claimed_at<?)"),
        (&sql.inbox_release_unfinished, "inbox_unfinished (peer_id=? AND claimed_at<?)"),
    ];
    // They sort what one id has in all sources, and what nobody has finished: neither grows.
    let sorting = [&sql.queue_dead_by_id, &sql.inbox_unfinished];
    for (sql, wanted) in expected {
        let plan = plan(&connection, sql);
        assert!(plan.contains(wanted), "{plan}\n of {sql}");
        assert!(!plan.contains("SCAN"), "{plan}\n of {sql}");
        assert!(!plan.contains("TEMP B-TREE") || sorting.contains(&sql), "{plan}\n of {sql}");
    }
}

/// S18: what operators run costs the same however much is retained. Only what grows with the configuration is scanned:
/// lanes and peers.
#[test]
fn s18_rf_22_statements_for_operators_use_their_indexes() {
    let connection = database(&Prefix::default());
    let sql = Sql::new(&Prefix::default());
    const LOG: &str = "SEARCH outbox_log USING INTEGER PRIMARY KEY (rowid";
    const ROW: &str = "USING INTEGER PRIMARY KEY (rowid=?)";
    let expected = [
        (&sql.ops_outbox_rows, "SEARCH l USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (&sql.ops_outbox_rows, "SEARCH outbox_waiting USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (&sql.ops_outbox_rows, "MERGE (UNION ALL)"),
        (&sql.ops_outbox_rows_open, "SEARCH l USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (&sql.ops_outbox_rows_open, "outbox_waiting_state (state=? AND rowid>? AND rowid<?)"),
        (&sql.ops_outbox_rows_open, "MERGE (UNION ALL)"),
        (&sql.ops_outbox_rows_of, "outbox_waiting_state (state=? AND rowid>? AND rowid<?)"),
        (&sql.ops_outbox_of_id, "outbox_log_message_id (message_id=?)"),
        (&sql.ops_outbox_of_id, "outbox_waiting_message_id (message_id=?)"),
        (&sql.ops_outbox_row, ROW),
        (&sql.ops_receipt, "SEARCH outbox_receipts USING PRIMARY KEY (lane_id=? AND last_seq>?)"),
        (&sql.ops_log_next, LOG),
        (&sql.ops_oldest_waiting, "outbox_waiting_oldest (lane_id=?)"),
        (&sql.ops_log_bounds, "SEARCH outbox_log"),
        (&sql.ops_log_dates, LOG),
        (&sql.ops_inbox_bounds, "SEARCH inbox"),
        (&sql.ops_inbox_dates, "SEARCH inbox USING INTEGER PRIMARY KEY (rowid>?)"),
        (&sql.ops_inbox_rows, "SEARCH inbox USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (&sql.ops_inbox_rows_died, "INDEX inbox_died (row_id>? AND row_id<?)"),
        (&sql.ops_inbox_rows_noticed, "inbox_noticed (status=? AND rowid>? AND rowid<?)"),
        (&sql.ops_inbox_rows_queued, "SEARCH q USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (&sql.ops_inbox_rows_open, "SEARCH q USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (&sql.ops_inbox_rows_open, "inbox_noticed (status=? AND rowid>? AND rowid<?)"),
        (&sql.ops_inbox_rest, ROW),
        (&sql.ops_inbox_of_id, "(peer_id=? AND message_id=?)"),
        (&sql.ops_inbox_detail, ROW),
        (&sql.ops_dead_letters, "outbox_waiting_dead (finished_at>?)"),
        (&sql.ops_dead_work, "inbox_letters (processed_at>?)"),
        (&sql.ops_blocked_work, "SCAN inbox_queue USING INDEX inbox_queue_blocked"),
        (&sql.ops_work_behind, "inbox_queue_key (peer_id=? AND ordering_key=?"),
        (&sql.ops_resume_lane, "(source=? AND destination=?)"),
        (&sql.ops_audit_end, ROW),
        (&sql.ops_audit_rows, "SEARCH twobox_audit USING INTEGER PRIMARY KEY (rowid<?)"),
        (&sql.sweep_audit, "twobox_audit_at (at<?)"),
        (&sql.paused_lanes, "(source=?)"),
    ];
    // As many as are configured, or as wait for somebody; and the tail of the log, from its end.
    let scanned = [
        "SCAN p USING COVERING INDEX sqlite_autoindex_inbox_peers_1",
        "SCAN inbox_queue USING INDEX inbox_queue_blocked",
        "SCAN CONSTANT ROW",
    ];
    for (sql, wanted) in expected {
        let plan = plan(&connection, sql);
        assert!(plan.contains(wanted), "{plan}\n of {sql}");
        // What a subquery has found and counted up to its limit is "scanned" as well.
        let bounded = |step: &str| scanned.contains(&step) || step.starts_with("SCAN (subquery");
        let scans = |step: &&str| step.starts_with("SCAN") && !bounded(step);
        assert_eq!(plan.split("; ").find(scans), None, "{plan}\n of {sql}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}\n of {sql}");
    }
    // The newest rows, from the end of the table; how many is the limit.
    assert_eq!(plan(&connection, &sql.ops_log_tail), "SCAN outbox_log");
    assert!(sql.ops_log_tail.contains("LIMIT ?1"));
}

fn columns(connection: &Connection, view: &str) -> BTreeSet<String> {
    let statement = connection.prepare(&format!("SELECT * FROM {view}")).unwrap();
    statement.column_names().map(Into::into).collect()
}

#[test]
fn rf_02_rf_07_ibx_117_the_views_have_the_columns_people_expect() {
    let connection = database(&Prefix::default());
    let outbox = columns(&connection, "outbox_messages");
    for column in [
        "message_id",
        "correlation_id",
        "message_type",
        "destination",
        "endpoint",
        "payload",
        "headers",
        "status",
        "retry_count",
        "max_retries",
        "next_retry_at",
        "last_attempt_at",
        "last_error",
        "created_at",
        "expires_at",
        "sent_at",
        "lease_owner",
        "ordering_key",
        "due_at",
    ] {
        assert!(outbox.contains(column), "outbox_messages has no {column}");
    }
    let work = columns(&connection, "inbox_work");
    for column in [
        "source",
        "message_id",
        "topic",
        "payload",
        "hash",
        "first_seen",
        "last_seen",
        "status",
        "locked_until",
        "owner_token",
        "attempt",
        "last_error",
        "next_attempt_at",
        "due_time",
    ] {
        assert!(work.contains(column), "inbox_work has no {column}");
    }
    let inbox = columns(&connection, "inbox_messages");
    for column in
        ["message_id", "source_service_id", "endpoint", "processed_at", "response_payload", "expires_at"]
    {
        assert!(inbox.contains(column), "inbox_messages has no {column}");
    }
}

#[test]
fn l8_looking_up_a_message_does_not_scan() {
    let connection = database(&Prefix::default());
    let sql = Sql::new(&Prefix::default());
    for sql in [&sql.ops_outbox_of_id, &sql.ops_outbox_row, &sql.ops_inbox_of_id] {
        let plan = plan(&connection, sql);
        assert!(!plan.contains("SCAN") || plan.starts_with("SCAN p"), "{plan}\n of {sql}");
    }
}

/// What is looked at is a window of the log, and nothing is sorted: both parts come in its order.
#[test]
fn l8_rf_18_looking_for_what_is_sent_again_goes_by_windows_of_the_log() {
    let connection = database(&Prefix::default());
    let plan = plan(&connection, &Sql::new(&Prefix::default()).resend_page);
    for wanted in [
        "SEARCH l USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
        "SEARCH w USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
        "SEARCH w USING INTEGER PRIMARY KEY (rowid=?)",
        "USING PRIMARY KEY (lane_id=? AND last_seq=?)",
        "SEARCH x USING PRIMARY KEY (lane_id=? AND last_seq>?)",
    ] {
        assert!(plan.contains(wanted), "{wanted} is not in {plan}");
    }
}
