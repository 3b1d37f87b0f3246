//! A node whose database becomes read-only while it runs, and can be written again later.
//!
//! It is what a kernel does that remounts a failing disk: writes to files that are open fail, and files can be opened
//! for reading only. Nobody can ask a kernel for that without a disk of their own, so the two halves are done to the
//! process: a limit of nothing for what it writes to files, and the permissions of the files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Resource, Rlimit, prlimit};
use tokio::process::Command;

use crate::operators::{address, ask, serve_operators};
use crate::program::{DONE, Program};
use crate::world::{Node, World};

const WRITE: &str = "write-token-0123456789";
const SEND: &str = "send-token-0123456789";

/// What operators look at, of either box.
const PAGES: [&str; 8] = [
    "/_rf/health",
    "/_rf/outbox/stats",
    "/_rf/outbox/messages",
    "/_rf/outbox/lanes",
    "/_rf/inbox/stats",
    "/_rf/inbox/messages",
    "/_rf/audit",
    "/metrics",
];

/// Runs what follows as somebody whom the permissions of files bind, and who is not killed by the limit. What it logs
/// is written by somebody else: the limit is on the log's file as well.
fn bound() -> Command {
    let script = "trap '' XFSZ; exec 2> >(exec cat >&2); exec \"$0\" \"$@\"";
    let mut command = if rustix::process::getuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-dac_override,-dac_read_search", "bash"]);
        command
    } else {
        Command::new("bash")
    };
    command.args(["-c", script]);
    command
}

/// Whether this machine lets us take away the right to write.
async fn can_be_bound(world: &World) -> bool {
    let probe = world.path("probe");
    std::fs::write(&probe, "").unwrap();
    allow(&probe, 0o444);
    let append = |mut command: Command, file: &Path| {
        command.args(["bash", "-c", ": >> \"$0\""]).arg(file).stderr(Stdio::null()).status()
    };
    let refused = append(bound(), &probe).await.is_ok_and(|status| !status.success());
    allow(&probe, 0o644);
    refused && append(bound(), &probe).await.is_ok_and(|status| status.success())
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A node that can lose the right to write.
struct Bound {
    node: Node,
    folder: std::path::PathBuf,
    name: &'static str,
}

impl Bound {
    async fn start(world: &World, name: &'static str, config: &Path) -> Self {
        serve_operators(world, config, &format!("alice {WRITE}\n"), &format!("{SEND}\n"));
        let mut command = bound();
        command.args([env!("CARGO_BIN_EXE_twobox"), "serve"]);
        Self { node: Node::run(command, config).await, folder: world.path(""), name }
    }

    fn set(&self, mode: u32, bytes: Option<u64>) {
        for entry in std::fs::read_dir(&self.folder).unwrap().map(Result::unwrap) {
            if entry.file_name().to_str().unwrap().starts_with(&format!("{}.db", self.name)) {
                allow(&entry.path(), mode);
            }
        }
        prlimit(Some(self.node.pid()), Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    }

    fn read_only(&self) {
        self.set(0o444, Some(0));
    }

    fn writable(&self) {
        self.set(0o644, None);
    }

    async fn pages_are_shown(&self) {
        for page in PAGES {
            let (status, body) = ask(address(&self.node), &format!("GET {page}"), WRITE, "").await;
            assert_eq!(status, 200, "{page}: {body}");
        }
        let (_, figures) = ask(address(&self.node), "GET /metrics", WRITE, "").await;
        let trouble = figures
            .lines()
            .find_map(|line| line.strip_prefix("twobox_store_trouble_total{kind=\"read_only\"} "));
        assert!(trouble.is_some_and(|count| count != "0"), "nobody would be alarmed: {trouble:?}");
    }
}

async fn is_skipped(world: &World) -> bool {
    let skipped = !can_be_bound(world).await;
    if skipped {
        eprintln!("SKIPPED: nobody can be bound by the permissions of files here");
    }
    skipped
}

/// How often the program was given each message.
fn effects(program: &Program) -> Vec<(String, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    program.seen().iter().for_each(|seen| *counts.entry(seen.id()).or_insert(0) += 1);
    counts.into_iter().collect()
}

/// Duplicates are answered from what is stored, what is new is told to come again and not charged, operators see
/// everything; and once it can be written, it goes on by itself: nothing is lost, nothing is doubled.
#[tokio::test(flavor = "multi_thread")]
async fn s14_rf_18_a_receiver_that_becomes_read_only_answers_duplicates_and_goes_on_when_it_can() {
    let world = World::new();
    if is_skipped(&world).await {
        return;
    }
    let program = Program::start(|_, _| DONE).await;
    let config = world.configure_billing(&program.url(), "127.0.0.1:0", &["1"]);
    let billing = Bound::start(&world, "billing", &config).await;
    let shop_config = world.configure_shop(billing.node.listen(), &["1"]);
    let shop = Node::start(&shop_config).await;
    world.enqueue(["known".into()]);
    world.until("billing", "SELECT count(*) FROM inbox_messages WHERE status = 'Done'", 1).await;
    world.until("shop", "SELECT count(*) FROM outbox_messages WHERE status = 'Sent'", 1).await;

    billing.read_only();
    world.enqueue((0..5).map(|n| format!("new-{n}")));
    world.until_logged("billing", "the receiver cannot answer", 2).await;
    let resend = ["resend", "--since", "1 h", "--yes", "--config"];
    let resent =
        Command::new(env!("CARGO_BIN_EXE_twobox")).args(resend).arg(&shop_config).status().await.unwrap();
    assert!(resent.success());
    world.until_logged("billing", "duplicate", 1).await;
    world.until("shop", "SELECT count(*) FROM outbox_messages WHERE status = 'Sent'", 1).await;
    billing.pages_are_shown().await;
    let (status, body) = ask(address(&billing.node), "POST /_rf/inbox/new-1/retry", WRITE, "{}").await;
    assert!(status == 503 && body.contains("\"read_only\""), "{status} {body}");
    world.until("shop", "SELECT count(*) FROM outbox_attempts", 0).await;
    assert_eq!(effects(&program), [("known".to_owned(), 1)]);

    billing.writable();
    world.until("shop", "SELECT count(*) FROM outbox_messages WHERE status = 'Sent'", 6).await;
    world.until("billing", "SELECT count(*) FROM inbox_messages WHERE status = 'Done'", 6).await;
    let once = ["known", "new-0", "new-1", "new-2", "new-3", "new-4"].map(|id| (id.to_owned(), 1));
    assert_eq!(effects(&program), once);
    shop.stop().await;
    billing.node.stop().await;
}

/// What is new is refused and says why, what was accepted is neither lost nor doubled, operators see everything; and
/// once it can be written, it goes on by itself.
#[tokio::test(flavor = "multi_thread")]
async fn s14_rf_18_a_sender_that_becomes_read_only_says_so_and_goes_on_when_it_can() {
    let world = World::new();
    if is_skipped(&world).await {
        return;
    }
    let program = Program::start(|_, _| DONE).await;
    let billing = Node::start(&world.configure_billing(&program.url(), "127.0.0.1:0", &["1"])).await;
    let shop = Bound::start(&world, "shop", &world.configure_shop(billing.listen(), &["1"])).await;
    let send = async |id: &str| {
        let message = format!(
            r#"{{"destination":"billing","endpoint":"OrderPlaced","payload":1,"messageId":"{id}","idempotencyKey":"{id}"}}"#
        );
        ask(address(&shop.node), "POST /v1/messages", SEND, &message).await
    };
    assert_eq!(send("before").await.0, 200);
    world.until("shop", "SELECT count(*) FROM outbox_messages WHERE status = 'Sent'", 1).await;

    shop.read_only();
    // Unless something else, such as the renewal of a lease, was the first that could not be written.
    let (status, body) = send("unknown").await;
    let known = ["\"outcome_unknown\"", "\"read_only\""].iter().any(|code| body.contains(code));
    assert!(status == 503 && known, "{status} {body}");
    for id in ["unknown", "refused"] {
        let (status, body) = send(id).await;
        assert!(
            status == 503 && body.contains("\"read_only\"") && body.contains("shop.db"),
            "{status} {body}"
        );
    }
    shop.pages_are_shown().await;

    shop.writable();
    for id in ["unknown", "refused", "after"] {
        let (status, body) = send(id).await;
        assert_eq!(status, 200, "{body}");
    }
    world.until("shop", "SELECT count(*) FROM outbox_messages WHERE status = 'Sent'", 4).await;
    world.until("billing", "SELECT count(*) FROM inbox_messages WHERE status = 'Done'", 4).await;
    let once = ["after", "before", "refused", "unknown"].map(|id| (id.to_owned(), 1));
    assert_eq!(effects(&program), once);
    shop.node.stop().await;
    billing.stop().await;
}
