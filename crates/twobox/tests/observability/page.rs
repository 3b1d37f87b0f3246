//! The page for Prometheus, read by a strict little parser.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use twobox::meters::{Meters, RequestOutcome};
use twobox::ports::LaneId;
use twobox::ports::ops::{InboxCounts, InboxStats, LaneStats, OutboxStats, PeerStats, WaitingCounts};
use twobox::prometheus::{Readings, render};
use twobox::{Consumer, Destination, LaneStatus, Source, Timestamp};

/// Labels by name.
pub(crate) type Labels = BTreeMap<String, String>;

/// One figure of a page.
#[derive(Debug, Default)]
pub(crate) struct Figure {
    pub(crate) kind: String,
    /// Samples by their suffix (empty, `_bucket`, …) and labels, in the order of the page.
    pub(crate) samples: Vec<(String, Labels, f64)>,
}

impl Figure {
    /// The names of its labels, without that of steps.
    pub(crate) fn labels(&self) -> BTreeSet<String> {
        let names = self.samples.iter().flat_map(|(_, labels, _)| labels.keys().cloned());
        names.filter(|name| name != "le").collect()
    }
}

/// Reads a page; panics at anything that is not exactly as the format wants it.
pub(crate) fn parse(page: &str) -> BTreeMap<String, Figure> {
    assert!(page.ends_with('\n'), "the last line has no end");
    let mut figures: BTreeMap<String, Figure> = BTreeMap::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let (name, help) = line.strip_prefix("# HELP ").expect(line).split_once(' ').expect(line);
        assert!(is_name(name) && !help.is_empty(), "{line}");
        let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).expect(line).to_owned();
        assert!(["counter", "gauge", "histogram"].contains(&kind.as_str()), "{line}");
        let mut figure = Figure { kind, samples: Vec::new() };
        while let Some(sample) = lines.next_if(|line| !line.starts_with('#')) {
            figure.samples.push(parse_sample(name, sample));
        }
        check(name, &figure);
        assert!(figures.insert(name.to_owned(), figure).is_none(), "{name} comes twice");
    }
    figures
}

fn is_name(name: &str) -> bool {
    let legal = |c: char| c == '_' || c.is_ascii_alphanumeric();
    name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic()) && name.chars().all(legal)
}

fn parse_sample(name: &str, line: &str) -> (String, Labels, f64) {
    let rest = line.strip_prefix(name).unwrap_or_else(|| panic!("{line} among the samples of {name}"));
    let at = rest.find(['{', ' ']).unwrap();
    let (suffix, rest) = rest.split_at(at);
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => parse_labels(rest),
        None => (Labels::new(), rest),
    };
    let value = value.strip_prefix(' ').expect(line);
    assert!(value.bytes().all(|c| c.is_ascii_digit() || b".-".contains(&c)), "{line}");
    (suffix.into(), labels, value.parse().unwrap())
}

fn parse_labels(text: &str) -> (Labels, &str) {
    let mut labels = Labels::new();
    let mut rest = text;
    loop {
        let (name, after) = rest.split_once("=\"").unwrap();
        assert!(is_name(name), "{text}");
        let (mut value, mut chars) = (String::new(), after.char_indices());
        let end = loop {
            match chars.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("\\{c} is no escape: {text}"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(name.into(), value).is_none(), "{name} twice: {text}");
        rest = &after[end + 1..];
        match rest.as_bytes()[0] {
            b',' => rest = &rest[1..],
            b'}' => return (labels, &rest[1..]),
            other => panic!("{other} after a label: {text}"),
        }
    }
}

fn check(name: &str, figure: &Figure) {
    let mut seen = BTreeSet::new();
    for (suffix, labels, value) in &figure.samples {
        assert!(seen.insert((suffix, labels)), "{name}{suffix} {labels:?} comes twice");
        assert!(figure.kind == "gauge" || *value >= 0.0, "{name} is less than nothing");
        let suffixes: &[&str] =
            if figure.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.contains(&suffix.as_str()), "{name}{suffix}");
    }
    if figure.kind == "histogram" {
        check_steps(name, figure);
    }
}

fn check_steps(name: &str, figure: &Figure) {
    let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for (suffix, labels, value) in &figure.samples {
        let mut labels = labels.clone();
        let step = labels.remove("le");
        assert_eq!(step.is_some(), suffix == "_bucket");
        match step.as_deref() {
            Some("+Inf") => series.entry(labels).or_default().push((f64::INFINITY, *value)),
            Some(bound) => series.entry(labels).or_default().push((bound.parse().unwrap(), *value)),
            None if suffix == "_count" => drop(counts.insert(labels, *value)),
            None => {}
        }
    }
    assert_eq!(series.len(), counts.len(), "{name}");
    for (labels, steps) in series {
        assert!(steps.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name}: {steps:?}");
        assert_eq!(*steps.last().unwrap(), (f64::INFINITY, counts[&labels]), "{name}");
    }
}

/// A page on which every figure has a sample.
pub(crate) fn full_page() -> String {
    let (source, destination) = (Source::new("shop \"7\"").unwrap(), Destination::new("bil\\ling").unwrap());
    let meters = Meters::default();
    let lane = meters.lane(&source, &destination);
    lane.requests.one(RequestOutcome::Answered);
    lane.send.took(Duration::from_micros(1_500), 500);
    lane.retries.saw(0, 500);
    lane.oldest.set(40_000_000);
    meters.inbox(&Consumer::new("billing").unwrap()).process.took(Duration::from_millis(3), 500);
    meters.backups.scheduled.set(1);
    meters.backups.newest.set(30_000_000);
    let mut status = LaneStatus::new(LaneId(1), source.clone(), destination);
    status.failed = 2;
    status.inbox_changes = 3;
    status.held_since = Some(Timestamp::from_micros(90_000_000));
    status.waiting = WaitingCounts { retrying: 1, scheduled: 2, held: 3, dead: 4 };
    let lane = LaneStats { lane: status, pending: Default::default(), oldest: None };
    let outbox = OutboxStats {
        lanes: vec![lane],
        enqueued: 1_000,
        pending: 10,
        waiting: WaitingCounts { retrying: 1, scheduled: 2, held: 3, dead: 4 },
        sent: 500,
        failed: 2,
        expired: 0,
        oldest: None,
    };
    let mut counts = InboxCounts::default();
    counts.rows = 7;
    counts.outbox_changes = 4;
    let peer = PeerStats { consumer: Consumer::new("billing").unwrap(), source, counts, watermark: None };
    let inbox = InboxStats { peers: vec![peer], total: counts };
    let now = Timestamp::from_micros(100_000_000);
    render(&Readings { meters: &meters, outbox: Some(&outbox), inbox: Some(&inbox), now })
}

#[test]
fn rf_21_the_page_is_what_prometheus_reads() {
    let page = full_page();
    let figures = parse(&page);
    let one = |name: &str| {
        let figure = &figures[name];
        assert_eq!(figure.samples.len(), 1, "{name}");
        (figure.samples[0].1.clone(), figure.samples[0].2)
    };
    assert_eq!(one("rf_outbox_pending_count"), (Labels::new(), 16.0));
    let lane = Labels::from(
        [("destination", "bil\\ling"), ("source", "shop \"7\"")].map(|(a, b)| (a.into(), b.into())),
    );
    assert_eq!(one("rf_outbox_failed_count"), (lane.clone(), 2.0));
    assert_eq!(one("twobox_outbox_lane_held_seconds"), (lane.clone(), 10.0));
    assert_eq!(one("twobox_outbox_oldest_pending_seconds"), (lane.clone(), 60.0));
    assert_eq!(one("twobox_outbox_inbox_changes_total"), (lane.clone(), 3.0));
    assert_eq!(one("rf_inbox_size").1, 7.0);
    assert_eq!(one("twobox_inbox_outbox_changes_total").1, 4.0);
    assert_eq!(one("twobox_backup_age_seconds"), (Labels::new(), 70.0));
    assert_eq!(one("twobox_backup_failing"), (Labels::new(), 0.0));
    let sent = &figures["rf_outbox_send_duration_ms"].samples;
    assert!(
        sent.contains(&("_sum".into(), lane.clone(), 750.0))
            && sent.contains(&("_count".into(), lane, 500.0))
    );
    for name in [
        "rf_outbox_pending_count",
        "rf_outbox_send_duration_ms",
        "rf_outbox_retry_count",
        "rf_outbox_failed_count",
        "rf_outbox_expired_count",
        "rf_inbox_duplicate_count",
        "rf_inbox_process_duration_ms",
        "rf_inbox_size",
    ] {
        assert!(!figures[name].samples.is_empty(), "{name}");
    }
}

#[test]
fn rf_21_names_from_the_database_do_not_make_the_page_grow_without_end() {
    let meters = Meters::default();
    let peers = (0..300).map(|n| {
        let mut counts = InboxCounts::default();
        counts.rows = 1;
        let source = Source::new(format!("stranger-{n:03}")).unwrap();
        PeerStats { consumer: Consumer::new("billing").unwrap(), source, counts, watermark: None }
    });
    let inbox = InboxStats { peers: peers.collect(), total: InboxCounts::default() };
    let now = Timestamp::default();
    let figures = parse(&render(&Readings { meters: &meters, outbox: None, inbox: Some(&inbox), now }));
    let samples = &figures["rf_inbox_size"].samples;
    assert_eq!(samples.len(), 257);
    let other: Vec<f64> =
        samples.iter().filter(|sample| sample.1["source"] == "other").map(|sample| sample.2).collect();
    assert_eq!(other, [44.0]);
    assert!(
        figures["rf_outbox_failed_count"].samples.is_empty(),
        "what the store does not say is not made up"
    );
    assert!(figures["twobox_backup_age_seconds"].samples.is_empty(), "nor are backups of nobody's");
    assert_eq!(figures["twobox_store_readable"].samples[0].2, 0.0);
}
