-- The outbox as a log with cursors, the inbox as a row per message, and the views people expect.
-- `/*p*/` is where the table prefix goes; the file runs as it stands with the default, empty one.

-- One insert per message, never updated. AUTOINCREMENT, because a reused seq below a cursor would be skipped.
-- The defaults let any language enqueue with a plain INSERT; see docs/SQL.md.
CREATE TABLE /*p*/outbox_log (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id     TEXT NOT NULL
        -- A UUIDv7 made of the wall clock and chance, in functions that SQLite has had for many years.
        DEFAULT (printf('%08x-%04x-7%03x-%04x-%012x',
            CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER) >> 16,
            CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER) & 0xffff,
            random() & 0xfff,
            0x8000 | (random() & 0x3fff),
            random() & 0xffffffffffff))
        CHECK (length(message_id) BETWEEN 1 AND 255),
    source         TEXT NOT NULL CHECK (length(source) BETWEEN 1 AND 255),
    destination    TEXT NOT NULL CHECK (length(destination) BETWEEN 1 AND 255),
    endpoint       TEXT NOT NULL CHECK (length(endpoint) BETWEEN 1 AND 255),
    message_type   TEXT NOT NULL DEFAULT 'Signal'
        -- Written out: a list of this length would build a small b-tree for every insert.
        CHECK (message_type = 'Signal' OR message_type = 'Command' OR message_type = 'PushCall'
            OR message_type = 'Response'),
    content_type   TEXT NOT NULL DEFAULT 'application/json',
    correlation_id TEXT,
    ordering_key   TEXT,
    headers        TEXT,
    created_at     INTEGER NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)),
    due_at         INTEGER,
    expires_at     INTEGER,
    -- Last, as everywhere: what stands behind something large takes as long to find as to read.
    payload        ANY NOT NULL CHECK (typeof(payload) IN ('text', 'blob'))
) STRICT;

-- Looking up a message by id must not scan. Not unique: two services may share the file, and ids of one
-- source are made unique by whoever mints them. UUIDv7 ids grow this index at its right edge only.
CREATE INDEX /*p*/outbox_log_message_id ON /*p*/outbox_log (message_id);

-- One row per source and destination: the cursor, the lease that fences it, the breaker, the counters.
CREATE TABLE /*p*/outbox_lanes (
    lane_id       INTEGER PRIMARY KEY,
    source        TEXT NOT NULL,
    destination   TEXT NOT NULL,
    cursor        INTEGER NOT NULL DEFAULT 0,
    sending       INTEGER NOT NULL DEFAULT 0,
    next_joined   INTEGER NOT NULL DEFAULT 1,
    lease_owner   TEXT,
    lease_token   INTEGER NOT NULL DEFAULT 0,
    lease_until   INTEGER NOT NULL DEFAULT 0,
    registered_at INTEGER NOT NULL,
    retries_max   INTEGER,
    held_since    INTEGER,
    held_error    TEXT,
    next_probe_at INTEGER,
    sent          INTEGER NOT NULL DEFAULT 0,
    failed        INTEGER NOT NULL DEFAULT 0,
    expired       INTEGER NOT NULL DEFAULT 0,
    -- Messages of the log that the cursor has passed: the log's end less all lanes' is what is pending. Whoever moves a
    -- cursor back takes off what it will pass again.
    passed        INTEGER NOT NULL DEFAULT 0,
    -- What waits outside of the log, and what died. Kept by the triggers of outbox_waiting.
    retrying      INTEGER NOT NULL DEFAULT 0,
    scheduled     INTEGER NOT NULL DEFAULT 0,
    held          INTEGER NOT NULL DEFAULT 0,
    dead          INTEGER NOT NULL DEFAULT 0,
    -- Since when nothing is sent, because of whom and why. NULL: it runs.
    paused_at     INTEGER,
    paused_by     TEXT,
    paused_reason TEXT,
    -- When the youngest message was sent that is no longer in the log.
    trimmed_at    INTEGER,
    -- The inbox that answers, as it says; when it was last another one than before, and how often.
    inbox            TEXT,
    inbox_changed_at INTEGER,
    inbox_changes    INTEGER NOT NULL DEFAULT 0,
    UNIQUE (source, destination),
    CHECK ((paused_at IS NULL) = (paused_by IS NULL) AND (paused_at IS NULL) = (paused_reason IS NULL))
) STRICT;

-- One row per acknowledged batch: when the messages from first_seq to last_seq of the lane were sent.
CREATE TABLE /*p*/outbox_receipts (
    lane_id   INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    sent_at   INTEGER NOT NULL,
    messages  INTEGER NOT NULL,
    PRIMARY KEY (lane_id, last_seq)
) STRICT, WITHOUT ROWID;

-- Messages that failed, are scheduled, are held behind a head, or died. They carry their payload, so the log
-- can be trimmed without them.
CREATE TABLE /*p*/outbox_waiting (
    seq             INTEGER PRIMARY KEY,
    lane_id         INTEGER NOT NULL,
    message_id      TEXT NOT NULL,
    source          TEXT NOT NULL,
    destination     TEXT NOT NULL,
    endpoint        TEXT NOT NULL,
    message_type    TEXT NOT NULL,
    content_type    TEXT NOT NULL,
    correlation_id  TEXT,
    ordering_key    TEXT,
    headers         TEXT,
    created_at      INTEGER NOT NULL,
    due_at          INTEGER,
    expires_at      INTEGER NOT NULL,
    replay          INTEGER NOT NULL DEFAULT 0,
    state           TEXT NOT NULL CHECK (state = 'Pending' OR state = 'Sent' OR state = 'Failed'
        OR state = 'Expired'),
    attempts        INTEGER NOT NULL DEFAULT 0,
    -- Place among the waiting messages: set once, when it fails, is held or comes due. NULL while scheduled.
    joined          INTEGER,
    -- Whether later messages of the ordering key must wait for this one.
    holds_key       INTEGER NOT NULL DEFAULT 0 CHECK (holds_key IN (0, 1)),
    -- NULL while scheduled, held behind another message of the key, or finished.
    next_attempt_at INTEGER,
    last_attempt_at INTEGER,
    last_error      TEXT,
    reason          TEXT,
    finished_at     INTEGER,
    -- 0: the dead-letter callback is still due. NULL: not dead.
    announced       INTEGER,
    replayed_as     TEXT,
    payload         ANY NOT NULL,
    CHECK ((state = 'Pending') = (finished_at IS NULL)),
    CHECK ((state IN ('Failed', 'Expired')) = (reason IS NOT NULL)),
    CHECK (next_attempt_at IS NULL OR (state = 'Pending' AND joined IS NOT NULL))
) STRICT;

CREATE INDEX /*p*/outbox_waiting_message_id ON /*p*/outbox_waiting (message_id);
CREATE INDEX /*p*/outbox_waiting_retry ON /*p*/outbox_waiting (lane_id, next_attempt_at)
    WHERE next_attempt_at IS NOT NULL;
CREATE INDEX /*p*/outbox_waiting_scheduled ON /*p*/outbox_waiting (lane_id, due_at)
    WHERE state = 'Pending' AND joined IS NULL;
CREATE INDEX /*p*/outbox_waiting_expiry ON /*p*/outbox_waiting (lane_id, expires_at)
    WHERE state = 'Pending';
CREATE INDEX /*p*/outbox_waiting_key ON /*p*/outbox_waiting (lane_id, ordering_key, joined, seq)
    WHERE holds_key = 1;
-- Those of a key that have a next attempt: its head, and what has to give way to it.
CREATE INDEX /*p*/outbox_waiting_heads ON /*p*/outbox_waiting (lane_id, ordering_key)
    WHERE holds_key = 1 AND next_attempt_at IS NOT NULL;
CREATE INDEX /*p*/outbox_waiting_blocked ON /*p*/outbox_waiting (lane_id, ordering_key)
    WHERE holds_key = 1 AND finished_at IS NOT NULL;
CREATE INDEX /*p*/outbox_waiting_dead ON /*p*/outbox_waiting (finished_at, seq)
    WHERE reason IS NOT NULL AND replayed_as IS NULL;
-- What is over: sent, or replayed under another id.
CREATE INDEX /*p*/outbox_waiting_over ON /*p*/outbox_waiting (finished_at)
    WHERE state = 'Sent' OR replayed_as IS NOT NULL;
CREATE INDEX /*p*/outbox_waiting_unannounced ON /*p*/outbox_waiting (source, seq)
    WHERE announced = 0;
-- For operators: those of one state, newest first; the one that has waited longest in a lane.
CREATE INDEX /*p*/outbox_waiting_state ON /*p*/outbox_waiting (state);
CREATE INDEX /*p*/outbox_waiting_oldest ON /*p*/outbox_waiting (lane_id)
    WHERE state = 'Pending' AND joined IS NOT NULL;

-- The lanes' counters change with the rows, whoever changes them. Nothing like it stands on the log: messages that go
-- well pay for none of it.
CREATE TRIGGER /*p*/outbox_waiting_added AFTER INSERT ON /*p*/outbox_waiting BEGIN
    UPDATE /*p*/outbox_lanes
    SET retrying = retrying + (NEW.next_attempt_at IS NOT NULL),
        scheduled = scheduled + (NEW.state = 'Pending' AND NEW.joined IS NULL),
        held = held + (NEW.state = 'Pending' AND NEW.joined IS NOT NULL AND NEW.next_attempt_at IS NULL),
        dead = dead + (NEW.reason IS NOT NULL AND NEW.replayed_as IS NULL)
    WHERE lane_id = NEW.lane_id;
END;
CREATE TRIGGER /*p*/outbox_waiting_removed AFTER DELETE ON /*p*/outbox_waiting BEGIN
    UPDATE /*p*/outbox_lanes
    SET retrying = retrying - (OLD.next_attempt_at IS NOT NULL),
        scheduled = scheduled - (OLD.state = 'Pending' AND OLD.joined IS NULL),
        held = held - (OLD.state = 'Pending' AND OLD.joined IS NOT NULL AND OLD.next_attempt_at IS NULL),
        dead = dead - (OLD.reason IS NOT NULL AND OLD.replayed_as IS NULL)
    WHERE lane_id = OLD.lane_id;
END;
CREATE TRIGGER /*p*/outbox_waiting_changed
AFTER UPDATE OF state, joined, next_attempt_at, reason, replayed_as ON /*p*/outbox_waiting
WHEN NEW.state <> OLD.state OR (NEW.joined IS NULL) <> (OLD.joined IS NULL)
    OR (NEW.next_attempt_at IS NULL) <> (OLD.next_attempt_at IS NULL)
    OR (NEW.reason IS NULL) <> (OLD.reason IS NULL) OR (NEW.replayed_as IS NULL) <> (OLD.replayed_as IS NULL)
BEGIN
    UPDATE /*p*/outbox_lanes
    SET retrying = retrying + (NEW.next_attempt_at IS NOT NULL) - (OLD.next_attempt_at IS NOT NULL),
        scheduled = scheduled + (NEW.state = 'Pending' AND NEW.joined IS NULL)
            - (OLD.state = 'Pending' AND OLD.joined IS NULL),
        held = held + (NEW.state = 'Pending' AND NEW.joined IS NOT NULL AND NEW.next_attempt_at IS NULL)
            - (OLD.state = 'Pending' AND OLD.joined IS NOT NULL AND OLD.next_attempt_at IS NULL),
        dead = dead + (NEW.reason IS NOT NULL AND NEW.replayed_as IS NULL)
            - (OLD.reason IS NOT NULL AND OLD.replayed_as IS NULL)
    WHERE lane_id = NEW.lane_id;
END;

-- Failed attempts, the last few of each message. Success leaves none.
CREATE TABLE /*p*/outbox_attempts (
    attempt_id INTEGER PRIMARY KEY,
    seq        INTEGER NOT NULL,
    replay     INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    error      TEXT NOT NULL
) STRICT;
CREATE INDEX /*p*/outbox_attempts_seq ON /*p*/outbox_attempts (seq);

-- Keys under which a message was enqueued, so that it is enqueued once.
CREATE TABLE /*p*/outbox_once (
    source     TEXT NOT NULL,
    once_key   TEXT NOT NULL,
    message_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (source, once_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX /*p*/outbox_once_created ON /*p*/outbox_once (created_at);

-- One row per consumer and source: the purge watermark and what it is derived from, and the counters. Those change with
-- the rows they count, once per group of messages.
CREATE TABLE /*p*/inbox_peers (
    peer_id          INTEGER PRIMARY KEY,
    consumer         TEXT NOT NULL,
    source           TEXT NOT NULL,
    newest_available INTEGER NOT NULL DEFAULT -9223372036854775808,
    watermark        INTEGER NOT NULL DEFAULT -9223372036854775808,
    -- So far.
    done             INTEGER NOT NULL DEFAULT 0,
    duplicates       INTEGER NOT NULL DEFAULT 0,
    died             INTEGER NOT NULL DEFAULT 0,
    conflicts        INTEGER NOT NULL DEFAULT 0,
    too_old          INTEGER NOT NULL DEFAULT 0,
    mismatches       INTEGER NOT NULL DEFAULT 0,
    -- Now: rows in the inbox, messages to be handled later, dead letters that are listed.
    size             INTEGER NOT NULL DEFAULT 0,
    queued           INTEGER NOT NULL DEFAULT 0,
    dead             INTEGER NOT NULL DEFAULT 0,
    -- The outbox that was met last; when one was met for the first time beside others, and how often.
    outbox            TEXT,
    outbox_changed_at INTEGER,
    outbox_changes    INTEGER NOT NULL DEFAULT 0,
    UNIQUE (consumer, source)
) STRICT;

-- The outboxes that were met under a source: a source may have several, and one that is restored counts as another.
CREATE TABLE /*p*/inbox_outboxes (
    peer_id    INTEGER NOT NULL,
    outbox     TEXT NOT NULL CHECK (length(outbox) BETWEEN 1 AND 255),
    met_at     INTEGER NOT NULL,
    PRIMARY KEY (peer_id, outbox)
) STRICT, WITHOUT ROWID;

-- Dedup record and stored response.
CREATE TABLE /*p*/inbox (
    row_id         INTEGER PRIMARY KEY,
    peer_id        INTEGER NOT NULL,
    message_id     TEXT NOT NULL CHECK (length(message_id) BETWEEN 1 AND 255),
    status         TEXT NOT NULL CHECK (status = 'Processing' OR status = 'Done' OR status = 'Dead'
        OR status = 'Seen' OR status = 'Expired'),
    endpoint       TEXT NOT NULL,
    message_type   TEXT NOT NULL,
    -- NULL: SHA-256, if there is a hash.
    hash_algorithm TEXT,
    body_hash      BLOB CHECK (hash_algorithm IS NOT NULL OR body_hash IS NULL OR length(body_hash) = 32),
    available_at   INTEGER NOT NULL,
    received_at    INTEGER NOT NULL,
    -- NULL: not since it was received.
    last_seen_at   INTEGER,
    -- Since when somebody has noticed or claimed it without finishing it. NULL while it is queued or final.
    claimed_at     INTEGER,
    -- Who has claimed it before handling it, and which claim that is. What is dead and has one is a dead letter of this
    -- inbox, empty if nobody had claimed it; what is dead and has none is its sender's, or no longer listed.
    handler        TEXT,
    claim_token    INTEGER,
    processed_at   INTEGER,
    replay         INTEGER NOT NULL DEFAULT 0,
    response_type  TEXT,
    error          TEXT,
    response       BLOB,
    UNIQUE (peer_id, message_id),
    CHECK (status <> 'Done' OR (processed_at IS NOT NULL AND response IS NOT NULL)),
    CHECK (status <> 'Dead' OR (processed_at IS NOT NULL AND error IS NOT NULL))
) STRICT;
-- The sweeper purges final rows by the senders' time; dead letters stay and must not be in its way.
CREATE INDEX /*p*/inbox_purgeable ON /*p*/inbox (peer_id, available_at) WHERE status = 'Done';
-- Rejections that are their senders' may be many, and must not be in the way of those who list what is dead here.
CREATE INDEX /*p*/inbox_letters ON /*p*/inbox (processed_at)
    WHERE status IN ('Dead', 'Expired') AND handler IS NOT NULL;
CREATE INDEX /*p*/inbox_unfinished ON /*p*/inbox (peer_id, claimed_at) WHERE claimed_at IS NOT NULL;
-- For operators, newest first. What is Done is in neither.
CREATE INDEX /*p*/inbox_died ON /*p*/inbox (row_id) WHERE status IN ('Dead', 'Expired');
CREATE INDEX /*p*/inbox_noticed ON /*p*/inbox (status) WHERE claimed_at IS NOT NULL;

-- Messages that are stored and handled later. The row goes when the message is done: what is left is its row in the
-- inbox, so claims cost the same however much was done before. Dead letters stay, with their payload.
CREATE TABLE /*p*/inbox_queue (
    -- The message's row in the inbox, which has its id, endpoint and type.
    item_id         INTEGER PRIMARY KEY,
    consumer        TEXT NOT NULL,
    peer_id         INTEGER NOT NULL,
    destination     TEXT NOT NULL,
    content_type    TEXT NOT NULL,
    correlation_id  TEXT,
    ordering_key    TEXT,
    headers         TEXT,
    created_at      INTEGER NOT NULL,
    due_at          INTEGER,
    expires_at      INTEGER NOT NULL,
    state           TEXT NOT NULL DEFAULT 'Open' CHECK (state = 'Open' OR state = 'Dead' OR state = 'Expired'),
    attempts        INTEGER NOT NULL DEFAULT 0,
    -- When it can be claimed: due, after its back-off, or when its lease is over. NULL: behind another one of its
    -- ordering key, or dead.
    ready_at        INTEGER,
    -- Whether ready_at was asked for, so that no clock can have made it too late.
    scheduled       INTEGER NOT NULL DEFAULT 0 CHECK (scheduled IN (0, 1)),
    -- Place in its ordering key. NULL: it has no key, is not due yet, or no longer holds its key.
    joined          INTEGER,
    lease_owner     BLOB,
    lease_token     INTEGER NOT NULL DEFAULT 0,
    lease_until     INTEGER,
    last_attempt_at INTEGER,
    last_error      TEXT,
    reason          TEXT,
    payload         ANY NOT NULL,
    CHECK ((state = 'Open') = (reason IS NULL)),
    CHECK ((lease_owner IS NULL) = (lease_until IS NULL)),
    CHECK (ready_at IS NULL OR state = 'Open')
) STRICT;
CREATE INDEX /*p*/inbox_queue_ready ON /*p*/inbox_queue (consumer, scheduled, ready_at)
    WHERE ready_at IS NOT NULL;
CREATE INDEX /*p*/inbox_queue_leased ON /*p*/inbox_queue (consumer, lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX /*p*/inbox_queue_key ON /*p*/inbox_queue (peer_id, ordering_key, joined) WHERE joined IS NOT NULL;
-- Keys that wait for an operator.
CREATE INDEX /*p*/inbox_queue_blocked ON /*p*/inbox_queue (peer_id, ordering_key)
    WHERE joined IS NOT NULL AND reason IS NOT NULL;

-- What operators did: written before it is done, with its outcome afterwards. Names and numbers only.
CREATE TABLE /*p*/twobox_audit (
    audit_id INTEGER PRIMARY KEY AUTOINCREMENT,
    at       INTEGER NOT NULL,
    actor    TEXT NOT NULL,
    action   TEXT NOT NULL,
    subject  TEXT NOT NULL,
    detail   TEXT NOT NULL,
    outcome  TEXT NOT NULL DEFAULT 'begun'
        CHECK (outcome = 'begun' OR outcome = 'done' OR outcome = 'refused' OR outcome = 'failed'),
    result   TEXT
) STRICT;
CREATE INDEX /*p*/twobox_audit_at ON /*p*/twobox_audit (at);

-- Small facts: schema version, instances of both boxes, how far destinations were discovered, the sweeper's lease.
CREATE TABLE /*p*/twobox_meta (
    name  TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO /*p*/twobox_meta (name, value) VALUES
    ('outbox_instance', lower(hex(randomblob(16)))),
    ('inbox_instance', lower(hex(randomblob(16)))),
    ('dedup_window', 604800000000),
    ('synced', 0);

-- One row for each time the file was restored from a backup: which boxes they were, and which they are since then.
CREATE TABLE /*p*/twobox_restores (
    restore_id      INTEGER PRIMARY KEY,
    restored_at     INTEGER NOT NULL,
    backup          TEXT NOT NULL,
    backup_at       INTEGER,
    outbox_before   TEXT,
    inbox_before    TEXT,
    outbox_instance TEXT NOT NULL,
    inbox_instance  TEXT NOT NULL
) STRICT;

-- The outbox as people expect it: one row per message with its status (RF-02).
CREATE VIEW /*p*/outbox_messages AS
SELECT
    l.message_id, l.correlation_id, l.message_type, l.source, l.destination, l.endpoint, l.payload, l.headers,
    l.ordering_key,
    CASE
        WHEN l.seq <= n.cursor THEN 'Sent'
        WHEN l.seq <= n.sending THEN 'Sending'
        ELSE 'Pending'
    END AS status,
    0 AS retry_count,
    n.retries_max AS max_retries,
    NULL AS next_retry_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', r.sent_at / 1e6, 'unixepoch') AS last_attempt_at,
    NULL AS last_error,
    strftime('%Y-%m-%dT%H:%M:%fZ', l.created_at / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', l.expires_at / 1e6, 'unixepoch') AS expires_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', r.sent_at / 1e6, 'unixepoch') AS sent_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', l.due_at / 1e6, 'unixepoch') AS due_at,
    CASE WHEN l.seq > n.cursor AND l.seq <= n.sending THEN n.lease_owner END AS lease_owner,
    l.seq
FROM /*p*/outbox_log AS l
LEFT JOIN /*p*/outbox_lanes AS n ON n.source = l.source AND n.destination = l.destination
LEFT JOIN /*p*/outbox_receipts AS r ON r.lane_id = n.lane_id AND l.seq <= n.cursor AND r.last_seq = (
    SELECT min(x.last_seq) FROM /*p*/outbox_receipts AS x WHERE x.lane_id = n.lane_id AND x.last_seq >= l.seq)
WHERE NOT EXISTS (SELECT 1 FROM /*p*/outbox_waiting AS w WHERE w.seq = l.seq)
UNION ALL
SELECT
    w.message_id, w.correlation_id, w.message_type, w.source, w.destination, w.endpoint, w.payload, w.headers,
    w.ordering_key,
    w.state,
    w.attempts,
    n.retries_max,
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(w.next_attempt_at, iif(w.joined IS NULL, w.due_at, NULL)) / 1e6,
        'unixepoch'),
    strftime('%Y-%m-%dT%H:%M:%fZ', w.last_attempt_at / 1e6, 'unixepoch'),
    w.last_error,
    strftime('%Y-%m-%dT%H:%M:%fZ', w.created_at / 1e6, 'unixepoch'),
    strftime('%Y-%m-%dT%H:%M:%fZ', w.expires_at / 1e6, 'unixepoch'),
    iif(w.state = 'Sent', strftime('%Y-%m-%dT%H:%M:%fZ', w.finished_at / 1e6, 'unixepoch'), NULL),
    strftime('%Y-%m-%dT%H:%M:%fZ', w.due_at / 1e6, 'unixepoch'),
    NULL,
    w.seq
FROM /*p*/outbox_waiting AS w
JOIN /*p*/outbox_lanes AS n ON n.lane_id = w.lane_id;

-- The inbox as people expect it (RF-07).
CREATE VIEW /*p*/inbox_messages AS
SELECT
    i.message_id,
    p.source AS source_service_id,
    p.consumer,
    i.endpoint,
    i.message_type,
    i.status,
    strftime('%Y-%m-%dT%H:%M:%fZ', i.received_at / 1e6, 'unixepoch') AS received_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', i.processed_at / 1e6, 'unixepoch') AS processed_at,
    i.response AS response_payload,
    i.response_type,
    i.error AS last_error,
    strftime('%Y-%m-%dT%H:%M:%fZ', (i.available_at +
        (SELECT value FROM /*p*/twobox_meta WHERE name = 'dedup_window')) / 1e6, 'unixepoch') AS expires_at
FROM /*p*/inbox AS i
JOIN /*p*/inbox_peers AS p ON p.peer_id = i.peer_id;

-- The inbox as a work queue, as people expect it (IBX appendix A).
CREATE VIEW /*p*/inbox_work AS
SELECT
    p.consumer,
    p.source,
    i.message_id,
    i.endpoint AS topic,
    q.payload,
    i.body_hash AS hash,
    i.status,
    coalesce(q.attempts, 0) AS attempt,
    strftime('%Y-%m-%dT%H:%M:%fZ', i.received_at / 1e6, 'unixepoch') AS first_seen,
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(i.last_seen_at, i.received_at) / 1e6, 'unixepoch') AS last_seen,
    strftime('%Y-%m-%dT%H:%M:%fZ', q.due_at / 1e6, 'unixepoch') AS due_time,
    strftime('%Y-%m-%dT%H:%M:%fZ', q.ready_at / 1e6, 'unixepoch') AS next_attempt_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', q.lease_until / 1e6, 'unixepoch') AS locked_until,
    lower(hex(q.lease_owner)) AS owner_token,
    q.ordering_key,
    coalesce(q.last_error, i.error) AS last_error,
    q.reason
FROM /*p*/inbox AS i
JOIN /*p*/inbox_peers AS p ON p.peer_id = i.peer_id
LEFT JOIN /*p*/inbox_queue AS q ON q.item_id = i.row_id;
