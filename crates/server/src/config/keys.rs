//! Every setting there is, with its default. `twobox.toml` gives the reasons.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use toml::Value;
use twobox::{ClientLimits, Durability, HeadPolicy, RelayOptions, ServerLimits, SweepPlan, WorkerOptions};
use twobox_core::Timestamp;

use super::section::{Given, Section, section};
use super::units::Size;
use super::value::{Problem, Read, Setting, kind, text};

/// The whole configuration of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Config {
    pub(crate) node: Node,
    pub(crate) log: Log,
    pub(crate) outbox: Outbox,
    pub(crate) destinations: BTreeMap<String, Destination>,
    pub(crate) receive: Receive,
    pub(crate) sources: BTreeMap<String, Source>,
    pub(crate) handler: Handler,
    pub(crate) inbox: Inbox,
    pub(crate) admin: Admin,
    pub(crate) backup: Backup,
}

section! {
    /// Who the node is and where it keeps everything.
    Node {
        name: String = String::new(),
        database: String = "twobox.db".into(),
        durability: Durability = Durability::Full,
        stop_timeout: Duration = Duration::from_secs(10),
    }
}

section! {
    /// What is told to people.
    Log {
        level: String = "info".into(),
        format: LogFormat = LogFormat::Text,
    }
}

section! {
    /// How messages are sent.
    Outbox {
        retries_max: u32 = RelayOptions::default().timing.retry.retries_max(),
        retry_base: Duration = Duration::from_secs(2),
        retry_max: Duration = Duration::from_secs(300),
        retry_jitter: Duration = Duration::from_millis(500),
        ttl: Duration = RelayOptions::default().timing.ttl,
        batch_messages_max: usize = RelayOptions::default().batch_messages_max,
        batch_bytes_max: Size = Size(RelayOptions::default().batch_bytes_max),
        in_flight_max: usize = RelayOptions::default().in_flight_max,
        request_timeout: Duration = RelayOptions::default().timing.request_timeout,
        connect_timeout: Duration = ClientLimits::default().connect_timeout,
        lease: Duration = RelayOptions::default().timing.lease,
        head_policy: HeadPolicy = HeadPolicy::Block,
        probe_base: Duration = Duration::from_millis(100),
        probe_max: Duration = Duration::from_secs(10),
        route_grace: Duration = RelayOptions::default().route_grace,
        payload_max: Size = Size(twobox_core::message::PAYLOAD_BYTES_MAX),
        sent_retention: Duration = SweepPlan::default().sent_retention,
        once_retention: Duration = SweepPlan::default().once_retention,
    }
}

section! {
    /// One service that messages are sent to.
    Destination {
        url: String = String::new(),
        keys: Vec<Key> = Vec::new(),
        unsigned: bool = false,
        tls_roots_file: Option<PathBuf> = None,
    }
}

section! {
    /// A key that is shared with a peer.
    Key {
        id: String = String::new(),
        secret_env: String = String::new(),
        secret_file: Option<PathBuf> = None,
        not_before: Option<Timestamp> = None,
        not_after: Option<Timestamp> = None,
    }
}

section! {
    /// How messages are received.
    Receive {
        listen: Option<SocketAddr> = None,
        names: Vec<String> = Vec::new(),
        unsigned: bool = false,
        tls_certificate_file: Option<PathBuf> = None,
        tls_key_file: Option<PathBuf> = None,
        payload_max: Size = Size(twobox_core::message::PAYLOAD_BYTES_MAX),
        connections_max: usize = ServerLimits::default().connections_max,
        peer_connections_max: usize = ServerLimits::default().peer_connections_max,
        requests_max: usize = ServerLimits::default().requests_max,
        bodies_bytes_max: Size = Size(ServerLimits::default().bodies_bytes_max),
        head_timeout: Duration = ServerLimits::default().head_timeout,
        body_timeout: Duration = ServerLimits::default().body_timeout,
        idle_timeout: Duration = ServerLimits::default().idle_timeout,
        budget: Duration = ServerLimits::default().budget,
    }
}

section! {
    /// One service that messages are taken from.
    Source {
        keys: Vec<Key> = Vec::new(),
    }
}

section! {
    /// The user's own program, which handles what was received.
    Handler {
        url: String = String::new(),
        routes: BTreeMap<String, String> = BTreeMap::new(),
        remote: bool = false,
        timeout: Duration = Duration::from_secs(30),
        connect_timeout: Duration = ClientLimits::default().connect_timeout,
        retries_max: u32 = 100,
        retry_base: Duration = Duration::from_secs(2),
        retry_max: Duration = Duration::from_secs(300),
        retry_jitter: Duration = Duration::from_millis(500),
        reject_statuses: Vec<u16> = vec![400, 409, 410, 413, 415, 422],
        response_max: Size = Size(64 << 10),
        concurrency: usize = WorkerOptions::default().concurrency,
        lease: Duration = WorkerOptions::default().lease,
    }
}

section! {
    /// What is remembered of what was received.
    Inbox {
        dedup_window: Duration = SweepPlan::default().dedup_window,
        sweep_interval: Duration = Duration::from_secs(300),
    }
}

section! {
    /// The interface for operators.
    Admin {
        listen: Option<SocketAddr> = Some(SocketAddr::from(([127, 0, 0, 1], 7401))),
        read_token_env: String = String::new(),
        read_token_file: Option<PathBuf> = None,
        write_token_env: String = String::new(),
        write_token_file: Option<PathBuf> = None,
        send_token_env: String = String::new(),
        send_token_file: Option<PathBuf> = None,
        hosts: Vec<String> = Vec::new(),
        connections_max: usize = 64,
        requests_max: usize = 16,
        request_timeout: Duration = Duration::from_secs(10),
    }
}

section! {
    /// Copies of the database.
    Backup {
        folder: Option<PathBuf> = None,
        every: Duration = Duration::from_secs(3600),
        keep: Duration = Duration::from_secs(7 * 24 * 3600),
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// A setting that is one of a few words.
macro_rules! words {
    ($type:ty, $($word:literal => $value:path),*) => {
        text!(
            $type,
            |text| match text {
                $($word => Ok($value),)*
                _ => Err(Problem::new(format!("{text:?} is none of: {}", [$($word),*].join(", ")))),
            },
            |value| match value {
                $($value => $word.into(),)*
            }
        );
    };
}
words!(LogFormat, "text" => LogFormat::Text, "json" => LogFormat::Json);
words!(Durability, "full" => Durability::Full, "process-crash" => Durability::ProcessCrash);
words!(HeadPolicy, "block" => HeadPolicy::Block, "step-over" => HeadPolicy::StepOver, "fail-key" => HeadPolicy::FailKey);

type Set = dyn Fn(&mut Config, &Given<'_>) -> Read<()>;

/// A setting of the whole: where it stands in a file, and how it is set and shown.
pub(crate) struct Entry {
    /// Its path in the file, with dots.
    pub(crate) path: String,
    set: Box<Set>,
    show: Box<dyn Fn(&Config) -> Value>,
}

impl Entry {
    /// Its name in the environment: `TWOBOX_` and the path, in capitals, with `_` for dots.
    pub(crate) fn variable(&self) -> String {
        format!("TWOBOX_{}", self.path.replace('.', "_").to_uppercase())
    }

    pub(crate) fn set(&self, config: &mut Config, given: &Given<'_>) -> Read<()> {
        (self.set)(config, given)
    }

    pub(crate) fn show(&self, config: &Config) -> Value {
        (self.show)(config)
    }

    /// The table it stands in, and its name there. A table of names stands for itself.
    pub(crate) fn place(&self) -> (&str, Option<&str>) {
        self.path.split_once('.').map_or((&self.path, None), |(table, name)| (table, Some(name)))
    }
}

/// All settings, in the order of the file.
pub(crate) fn entries() -> Vec<Entry> {
    macro_rules! of {
        ($field:ident) => {
            section_entries(stringify!($field), |config| &config.$field, |config| &mut config.$field)
        };
    }
    macro_rules! names {
        ($field:ident) => {
            vec![Entry {
                path: stringify!($field).into(),
                set: Box::new(|config, given| {
                    config.$field = given.read()?;
                    Ok(())
                }),
                show: Box::new(|config| config.$field.show()),
            }]
        };
    }
    let sections = [
        of!(node),
        of!(log),
        of!(outbox),
        names!(destinations),
        of!(receive),
        names!(sources),
        of!(handler),
        of!(inbox),
        of!(admin),
        of!(backup),
    ];
    sections.into_iter().flatten().collect()
}

fn section_entries<S: Section>(
    table: &str,
    of: fn(&Config) -> &S,
    of_mut: fn(&mut Config) -> &mut S,
) -> Vec<Entry> {
    let entry = |key: &'static super::section::Key<S>| Entry {
        path: format!("{table}.{}", key.name),
        set: Box::new(move |config, given| (key.set)(of_mut(config), given)),
        show: Box::new(move |config| (key.show)(of(config))),
    };
    S::KEYS.iter().map(entry).collect()
}
