//! Every figure: its name, what it is, and where it comes from.

use std::collections::BTreeMap;

use twobox_core::meters::{
    BackupMeters, Case, Counters, InboxMeters, LABEL_SETS_MAX, LaneMeters, OTHER, StoreMeters,
};
use twobox_core::ports::LaneStatus;
use twobox_core::ports::ops::{InboxCounts, OutboxStats};

use super::Readings;
use super::text::{Kind, Page, number};

/// A figure.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) write: fn(&Readings<'_>, &mut Page),
}

const fn counter(name: &'static str, help: &'static str, write: fn(&Readings<'_>, &mut Page)) -> Family {
    Family { name, kind: Kind::Counter, help, write }
}

const fn gauge(name: &'static str, help: &'static str, write: fn(&Readings<'_>, &mut Page)) -> Family {
    Family { name, kind: Kind::Gauge, help, write }
}

const fn histogram(name: &'static str, help: &'static str, write: fn(&Readings<'_>, &mut Page)) -> Family {
    Family { name, kind: Kind::Histogram, help, write }
}

/// All of them, in the order of the page.
pub(super) const FAMILIES: &[Family] = &[
    gauge("rf_outbox_pending_count", "Messages that are still to be sent.", |of, page| {
        outbox(of, page, |stats| stats.pending + stats.waiting.open());
    }),
    histogram(
        "rf_outbox_send_duration_ms",
        "Time from a request to its answer, in milliseconds, once per message it carried.",
        |of, page| lane_histograms(of, page, |lane| &lane.send),
    ),
    histogram(
        "rf_outbox_retry_count",
        "Retries that a message needed until it was sent, died or expired.",
        |of, page| lane_histograms(of, page, |lane| &lane.retries),
    ),
    counter("rf_outbox_failed_count", "Messages that died.", |of, page| {
        lanes(of, page, |lane| number(lane.failed));
    }),
    counter("rf_outbox_expired_count", "Messages that expired before they were delivered.", |of, page| {
        lanes(of, page, |lane| number(lane.expired));
    }),
    counter("rf_inbox_duplicate_count", "Duplicates that were answered.", |of, page| {
        peers(of, page, |counts| counts.duplicates);
    }),
    histogram(
        "rf_inbox_process_duration_ms",
        "Time from the arrival of a batch to its answers, in milliseconds, once per message in it.",
        |of, page| inbox_histograms(of, page, |inbox| &inbox.process),
    ),
    gauge("rf_inbox_size", "Rows of the inbox.", |of, page| peers(of, page, |counts| counts.rows)),
    gauge("twobox_info", "The version that runs.", |_, page| {
        page.value(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    }),
    gauge("twobox_store_readable", "Whether the store's own figures could be read.", |of, page| {
        page.value(&[], flag(of.outbox.is_some() && of.inbox.is_some()));
    }),
    counter("twobox_outbox_enqueued_total", "Messages that were enqueued.", |of, page| {
        outbox(of, page, |stats| stats.enqueued);
    }),
    counter("twobox_outbox_sent_total", "Messages that were acknowledged.", |of, page| {
        lanes(of, page, |lane| number(lane.sent));
    }),
    gauge("twobox_outbox_waiting", "Messages that wait outside of the log.", waiting),
    gauge("twobox_outbox_dead_letters", "Dead letters of the outbox.", |of, page| {
        lanes(of, page, |lane| number(lane.waiting.dead));
    }),
    gauge(
        "twobox_outbox_oldest_pending_seconds",
        "How long the oldest unsettled message of the log could have been sent, by the relay of this process.",
        |of, page| lane_gauges(of, page, |lane| number(micros_since(of, lane.oldest.get())) / 1e6),
    ),
    counter("twobox_outbox_requests_total", "Requests with messages, by how they ended.", |of, page| {
        lane_counters(of, page, |lane| &lane.requests);
    }),
    counter("twobox_outbox_probes_total", "Requests that asked whether the receiver is back.", |of, page| {
        lane_counters(of, page, |lane| &lane.probes);
    }),
    gauge(
        "twobox_outbox_breaker_state",
        "0: requests flow, 1: the lane is held, 2: a probe is on its way.",
        |of, page| {
            lane_gauges(of, page, |lane| signed(lane.breaker.get()));
        },
    ),
    gauge("twobox_outbox_lane_leased", "Whether the relay of this process holds the lane.", |of, page| {
        lane_gauges(of, page, |lane| signed(lane.leased.get()));
    }),
    gauge(
        "twobox_outbox_lane_held_seconds",
        "How long an outage has held the lane; 0 if none does.",
        |of, page| {
            lanes(of, page, |lane| {
                number(lane.held_since.map_or(0, |since| micros_since(of, since.as_micros()))) / 1e6
            });
        },
    ),
    gauge("twobox_outbox_lane_paused", "Whether an operator has stopped the lane.", |of, page| {
        lanes(of, page, |lane| flag(lane.paused.is_some()));
    }),
    counter(
        "twobox_outbox_inbox_changes_total",
        "Times that the receiver's inbox was another one than before.",
        |of, page| lanes(of, page, |lane| number(lane.inbox_changes)),
    ),
    counter(
        "twobox_inbox_answers_total",
        "Messages that arrived, by what they were answered.",
        |of, page| {
            inbox_counters(of, page, |inbox| &inbox.answers);
        },
    ),
    counter(
        "twobox_inbox_unanswered_total",
        "Messages about which nothing could be answered, because the store was in trouble.",
        |of, page| inboxes(of, page, |inbox| number(inbox.unanswered.get())),
    ),
    counter("twobox_inbox_done_total", "Messages that were handled.", |of, page| {
        peers(of, page, |counts| counts.done);
    }),
    counter("twobox_inbox_died_total", "Messages that died or expired in the inbox.", |of, page| {
        peers(of, page, |counts| counts.died);
    }),
    counter(
        "twobox_inbox_conflicts_total",
        "Messages that were refused because their id is known with another content.",
        |of, page| peers(of, page, |counts| counts.conflicts),
    ),
    counter(
        "twobox_inbox_too_old_total",
        "Messages that were refused because they may have been handled and forgotten.",
        |of, page| peers(of, page, |counts| counts.too_old),
    ),
    counter(
        "twobox_inbox_mismatches_total",
        "Messages whose content differed from what was seen before, and that were taken all the same.",
        |of, page| peers(of, page, |counts| counts.mismatches),
    ),
    gauge("twobox_inbox_queued", "Messages that are stored and not handled yet.", |of, page| {
        peers(of, page, |counts| counts.queued);
    }),
    gauge("twobox_inbox_dead_letters", "Dead letters of the inbox.", |of, page| {
        peers(of, page, |counts| counts.dead);
    }),
    counter(
        "twobox_inbox_outbox_changes_total",
        "Times that the sender's outbox was another one than before.",
        |of, page| peers(of, page, |counts| counts.outbox_changes),
    ),
    counter("twobox_queue_claimed_total", "Queued messages that workers have claimed.", |of, page| {
        inboxes(of, page, |inbox| number(inbox.claimed.get()));
    }),
    counter("twobox_queue_handled_total", "Queued messages by what became of them.", |of, page| {
        inbox_counters(of, page, |inbox| &inbox.handled);
    }),
    histogram(
        "twobox_queue_handle_duration_ms",
        "Time that workers' handlers took, in milliseconds.",
        |of, page| {
            inbox_histograms(of, page, |inbox| &inbox.work);
        },
    ),
    counter("twobox_queue_leases_lost_total", "Leases that were lost during handling.", |of, page| {
        inboxes(of, page, |inbox| number(inbox.leases_lost.get()));
    }),
    gauge("twobox_queue_in_hand", "Messages that workers of this process have in hand.", |of, page| {
        inboxes(of, page, |inbox| signed(inbox.in_hand.get()));
    }),
    histogram(
        "twobox_store_commit_duration_ms",
        "Time that commits took, in milliseconds, those that synced the disk and those that did not.",
        |of, page| {
            page.histogram(&[("sync", "full")], &of.meters.store.synced);
            page.histogram(&[("sync", "none")], &of.meters.store.unsynced);
        },
    ),
    histogram("twobox_store_group_transactions", "Transactions that shared a commit.", |of, page| {
        page.histogram(&[], &of.meters.store.group);
    }),
    counter(
        "twobox_store_groups_again_total",
        "Groups that failed and whose members ran again.",
        |of, page| {
            store(of, page, |store| number(store.groups_again.get()));
        },
    ),
    counter(
        "twobox_store_gave_way_total",
        "Times that callers were held until delivery had caught up.",
        |of, page| {
            store(of, page, |store| number(store.gave_way.get()));
        },
    ),
    gauge(
        "twobox_store_wal_pages",
        "Pages in the write-ahead log at the last look, every 32 commits.",
        |of, page| {
            store(of, page, |store| signed(store.wal_pages.get()));
        },
    ),
    counter("twobox_store_checkpoints_failed_total", "Checkpoints that failed.", |of, page| {
        store(of, page, |store| number(store.checkpoints_failed.get()));
    }),
    counter("twobox_store_trouble_total", "Troubles of the database itself.", |of, page| {
        cases(page, &[], "kind", &of.meters.store.trouble);
    }),
    counter(
        "twobox_store_commits_unknown_total",
        "Failed commits after which the file was closed.",
        |of, page| {
            store(of, page, |store| number(store.doubts.get()));
        },
    ),
    counter(
        "twobox_store_reopened_total",
        "Times the file was reopened after a failed commit.",
        |of, page| {
            store(of, page, |store| number(store.reopened.get()));
        },
    ),
    gauge(
        "twobox_store_stopped",
        "Whether nothing is acknowledged until the file is opened again.",
        |of, page| {
            store(of, page, |store| signed(store.stopped.get()));
        },
    ),
    counter("twobox_http_requests_total", "Requests that arrived, by how they were answered.", |of, page| {
        cases(page, &[], "outcome", &of.meters.http.requests);
    }),
    gauge("twobox_http_connections", "Connections that are open.", |of, page| {
        page.value(&[], signed(of.meters.http.connections.get()));
    }),
    counter(
        "twobox_http_connections_turned_away_total",
        "Connections that were turned away because all others were at work.",
        |of, page| page.value(&[], number(of.meters.http.turned_away.get())),
    ),
    counter("twobox_http_connections_cut_total", "Connections that were cut.", |of, page| {
        page.value(&[("why", "overdue")], number(of.meters.http.overdue.get()));
        page.value(&[("why", "displaced")], number(of.meters.http.displaced.get()));
    }),
    counter("twobox_sweeper_rows_total", "Rows that were swept.", |of, page| {
        cases(page, &[], "rows", &of.meters.sweeper.swept);
    }),
    counter("twobox_sweeper_failures_total", "Sweeps that failed.", |of, page| {
        page.value(&[], number(of.meters.sweeper.failed.get()));
    }),
    gauge(
        "twobox_backup_age_seconds",
        "How long ago the newest backup was made; no sample where there is none, or no schedule.",
        |of, page| {
            let newest = of.meters.backups.newest.get();
            backups(of, |_| {
                if newest != 0 {
                    page.value(&[], number(micros_since(of, newest)) / 1e6);
                }
            });
        },
    ),
    gauge("twobox_backup_failing", "Whether the last try to make a backup failed.", |of, page| {
        backups(of, |backups| page.value(&[], signed(backups.failing.get())));
    }),
    counter("twobox_backup_tries_total", "Tries to make a backup, by how they ended.", |of, page| {
        backups(of, |backups| cases(page, &[], "outcome", &backups.tries));
    }),
];

fn flag(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are small")]
fn signed(value: i64) -> f64 {
    value as f64
}

/// Microseconds from a time until now; none if there is no such time.
fn micros_since(of: &Readings<'_>, micros: i64) -> u64 {
    if micros == 0 { 0 } else { u64::try_from(of.now.as_micros().saturating_sub(micros)).unwrap_or(0) }
}

fn outbox(of: &Readings<'_>, page: &mut Page, read: impl Fn(&OutboxStats) -> u64) {
    of.outbox.iter().for_each(|stats| page.value(&[], number(read(stats))));
}

fn store(of: &Readings<'_>, page: &mut Page, read: impl Fn(&StoreMeters) -> f64) {
    page.value(&[], read(&of.meters.store));
}

/// What a schedule of backups has to say, if there is one.
fn backups(of: &Readings<'_>, write: impl FnOnce(&BackupMeters)) {
    let backups = &of.meters.backups;
    if backups.scheduled.get() != 0 {
        write(backups);
    }
}

/// A sample for every lane the store knows. What is beyond the bound of label sets is one sample.
fn lanes(of: &Readings<'_>, page: &mut Page, read: impl Fn(&LaneStatus) -> f64) {
    let lanes = of.outbox.iter().flat_map(|stats| &stats.lanes).map(|stats| &stats.lane);
    let samples = lanes.map(|lane| ([lane.source.as_str(), lane.destination.as_str()], read(lane)));
    bounded(page, ["source", "destination"], samples);
}

fn peers(of: &Readings<'_>, page: &mut Page, read: impl Fn(&InboxCounts) -> u64) {
    let peers = of.inbox.iter().flat_map(|stats| &stats.peers);
    let samples =
        peers.map(|peer| ([peer.consumer.as_str(), peer.source.as_str()], number(read(&peer.counts))));
    bounded(page, ["consumer", "source"], samples);
}

fn waiting(of: &Readings<'_>, page: &mut Page) {
    let lanes = of.outbox.iter().flat_map(|stats| &stats.lanes).map(|stats| &stats.lane);
    let samples = lanes.flat_map(|lane| {
        let names = |state| [lane.source.as_str(), lane.destination.as_str(), state];
        let counts = lane.waiting;
        [("retrying", counts.retrying), ("scheduled", counts.scheduled), ("held", counts.held)]
            .map(|(state, count)| (names(state), number(count)))
    });
    bounded(page, ["source", "destination", "state"], samples);
}

/// Writes samples, those beyond the bound as one: names in a database may be anybody's.
fn bounded<'a, const N: usize>(
    page: &mut Page,
    labels: [&str; N],
    samples: impl Iterator<Item = ([&'a str; N], f64)>,
) {
    let mut kept: BTreeMap<[&str; N], f64> = BTreeMap::new();
    for (values, value) in samples {
        let full = kept.len() >= LABEL_SETS_MAX && !kept.contains_key(&values);
        *kept.entry(if full { [OTHER; N] } else { values }).or_default() += value;
    }
    for (values, value) in kept {
        let pairs: [(&str, &str); N] = std::array::from_fn(|at| (labels[at], values[at]));
        page.value(&pairs, value);
    }
}

fn each_lane(of: &Readings<'_>, mut write: impl FnMut(&[(&str, &str)], &LaneMeters)) {
    for ([source, destination], lane) in of.meters.lanes() {
        write(&[("source", &source), ("destination", &destination)], &lane);
    }
}

fn lane_gauges(of: &Readings<'_>, page: &mut Page, read: impl Fn(&LaneMeters) -> f64) {
    each_lane(of, |labels, lane| page.value(labels, read(lane)));
}

fn lane_histograms(
    of: &Readings<'_>,
    page: &mut Page,
    read: fn(&LaneMeters) -> &twobox_core::meters::Histogram,
) {
    each_lane(of, |labels, lane| page.histogram(labels, read(lane)));
}

fn lane_counters<C: Case>(of: &Readings<'_>, page: &mut Page, read: fn(&LaneMeters) -> &Counters<C>) {
    each_lane(of, |labels, lane| cases(page, labels, "outcome", read(lane)));
}

fn each_inbox(of: &Readings<'_>, mut write: impl FnMut(&[(&str, &str)], &InboxMeters)) {
    for ([consumer], inbox) in of.meters.inboxes() {
        write(&[("consumer", &consumer)], &inbox);
    }
}

fn inboxes(of: &Readings<'_>, page: &mut Page, read: fn(&InboxMeters) -> f64) {
    each_inbox(of, |labels, inbox| page.value(labels, read(inbox)));
}

fn inbox_histograms(
    of: &Readings<'_>,
    page: &mut Page,
    read: fn(&InboxMeters) -> &twobox_core::meters::Histogram,
) {
    each_inbox(of, |labels, inbox| page.histogram(labels, read(inbox)));
}

fn inbox_counters<C: Case>(of: &Readings<'_>, page: &mut Page, read: fn(&InboxMeters) -> &Counters<C>) {
    each_inbox(of, |labels, inbox| cases(page, labels, "outcome", read(inbox)));
}

/// A sample for each case.
fn cases<C: Case>(page: &mut Page, labels: &[(&str, &str)], name: &str, counters: &Counters<C>) {
    for (case, count) in counters.iter() {
        let all: Vec<(&str, &str)> = labels.iter().copied().chain([(name, case)]).collect();
        page.value(&all, number(count));
    }
}
