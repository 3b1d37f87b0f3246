//! A database with something of everything, a node that may run on it, and commands.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use twobox::ports::{BoxFuture, OpsStore as _, OwnerToken, Transport};
use twobox::{
    Answer, DeliveryError, Link, Message, MessageId, NewMessage, NewWork, OrderingKey, Sqlite, Twobox,
};
use twobox_testkit::eventually;

/// Longer than anything takes that works.
const EVER: Duration = Duration::from_secs(60);
pub(crate) const TOKEN: &str = "write-token-0123456789";
/// Stands in every payload, and may be printed by no command.
pub(crate) const CANARY: &str = "hunter2-canary";

/// Runs a program on a terminal, and gives an answer when it asks.
const TERMINAL: &str = r#"
import os, pty, sys
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[2], sys.argv[2:])
shown = b""
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:
        break
    if not part:
        break
    if b"[y/N]" in part:
        os.write(terminal, sys.argv[1].encode() + b"\n")
    shown += part
sys.stdout.buffer.write(shown)
sys.stdout.flush()
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;

/// Rejects what its endpoint says is to be rejected, and takes the rest.
struct Rejecting;

impl Transport for Rejecting {
    fn deliver(
        &self,
        _: &Arc<Link>,
        batch: Vec<Arc<Message>>,
        _: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>> {
        let mut failed = HashSet::new();
        let answer = move |message: Arc<Message>| match message.endpoint.as_str() {
            _ if failed.contains(&message.ordering_key) => Answer::Held,
            "Refund" => {
                failed.extend(message.ordering_key.is_some().then(|| message.ordering_key.clone()));
                Answer::Rejected { error: "no such customer".into() }
            }
            _ => Answer::Done(None),
        };
        Box::pin(async move { Ok(batch.into_iter().map(answer).collect()) })
    }
}

/// A folder with a database and a configuration.
pub(crate) struct World {
    folder: TempDir,
}

/// Where a command acts: the options that say so.
pub(crate) type Place = Vec<String>;

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Fails unless it ended so.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }
}

impl World {
    /// With three dead letters in either box, a blocked key in each, and three messages that were sent.
    pub(crate) async fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap() };
        let db = Sqlite::open(world.database()).await.unwrap();
        db.migrate().await.unwrap();
        let service = Twobox::builder("shop", &db).destination("billing", Rejecting).build().unwrap();
        let running = service.start();
        let orders = [("order-0", "Order", None), ("order-1", "Order", None), ("order-2", "Order", None)];
        let refunds = [("refund-0", "Refund", None), ("refund-1", "Refund", None)];
        let keyed = [("refund-2", "Refund", Some("customer-7")), ("order-3", "Order", Some("customer-7"))];
        for (id, endpoint, key) in orders.into_iter().chain(refunds).chain(keyed) {
            enqueue(&db, &service, id, endpoint, key).await;
        }
        eventually("the outbox has settled", EVER, async || {
            let stats = db.outbox_stats(10_000).await.unwrap();
            (stats.waiting.dead == 3 && stats.sent == 3 && stats.waiting.held == 1).then_some(())
        })
        .await;
        running.shutdown().await;
        fill_inbox(&db, &service).await;
        world.configure();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path("shop.db")
    }

    fn configure(&self) {
        let token = self.path("token");
        std::fs::write(&token, format!("ada {TOKEN}\n")).unwrap();
        std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
        // Nobody listens there.
        let text = "[node]\nname = \"shop\"\ndatabase = \"shop.db\"\n\
                    [admin]\nlisten = \"127.0.0.1:0\"\nwrite_token_file = \"token\"\n\
                    [destinations.billing]\nurl = \"http://127.0.0.1:9\"\nunsigned = true\n";
        std::fs::write(self.path("twobox.toml"), text).unwrap();
    }

    /// Runs a command as the user ada, in the folder.
    pub(crate) fn run<S: AsRef<str>>(&self, arguments: impl IntoIterator<Item = S>) -> Ran {
        self.run_with(arguments, Some(TOKEN))
    }

    pub(crate) fn run_with<S: AsRef<str>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        token: Option<&str>,
    ) -> Ran {
        let output = command(self.folder.path())
            .args(arguments.into_iter().map(|argument| argument.as_ref().to_owned()))
            .envs(token.map(|token| ("TWOBOX_ADMIN_TOKEN", token)))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let ran =
            Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) };
        let all = format!("{}{}", ran.out, ran.err);
        assert!(!all.contains(CANARY), "{all}");
        assert!(!all.contains(TOKEN), "{all}");
        assert!(!all.chars().any(|c| c.is_control() && c != '\n'), "{all:?}");
        ran
    }

    /// Runs a command at a place.
    pub(crate) fn at(&self, place: &Place, arguments: &[&str]) -> Ran {
        self.run(arguments.iter().map(|argument| (*argument).to_owned()).chain(place.iter().cloned()))
    }

    pub(crate) fn file(&self) -> Place {
        vec!["--database".into(), self.database().to_str().unwrap().into()]
    }

    /// Runs a command on a terminal of its own, where somebody answers its question; returns how it ended and all that
    /// was shown.
    pub(crate) fn on_a_terminal(&self, arguments: &[&str], answer: &str, no_color: &str) -> (i32, String) {
        let output = in_folder(Command::new("python3"), self.folder.path())
            .args(["-c", TERMINAL, answer, env!("CARGO_BIN_EXE_twobox")])
            .args(arguments)
            .env("NO_COLOR", no_color)
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    }

    /// Starts a node on the database.
    pub(crate) fn serve(&self) -> Node {
        let mut child = command(self.folder.path())
            .args(["serve", "--log-level", "error"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let address = said.split_whitespace().find_map(|word| word.strip_prefix("admin=")).unwrap();
        Node { place: vec!["--node".into(), format!("http://{address}")], child }
    }
}

fn command(folder: &Path) -> Command {
    in_folder(Command::new(env!("CARGO_BIN_EXE_twobox")), folder)
}

/// As the user ada, whatever is set outside.
fn in_folder(mut command: Command, folder: &Path) -> Command {
    command.current_dir(folder).env("USER", "ada").env_remove("TWOBOX_CONFIG").env("COLUMNS", "200");
    command
}

/// A running node; it is killed when it is dropped.
pub(crate) struct Node {
    pub(crate) place: Place,
    child: Child,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

async fn enqueue(db: &Sqlite, service: &Twobox, id: &str, endpoint: &str, key: Option<&str>) {
    let mut message = NewMessage::json("billing", endpoint, &CANARY).unwrap().id(MessageId::new(id).unwrap());
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    message.headers.insert("traceparent", trace).unwrap();
    message.headers.insert("x-secret", CANARY).unwrap();
    message.ordering_key = key.map(|key| OrderingKey::new(key).unwrap());
    let outbox = service.outbox();
    let enqueueing = db.transaction::<_, twobox::Error, _>(move |tx| outbox.enqueue(tx, &message).map(drop));
    enqueueing.await.unwrap();
}

async fn fill_inbox(db: &Sqlite, service: &Twobox) {
    let inbox = service.inbox();
    for (id, key) in
        [("box-0", None), ("box-1", None), ("box-2", Some("shelf-3")), ("box-3", Some("shelf-3"))]
    {
        let mut work = NewWork::new("Delivered", "warehouse", id, CANARY).unwrap();
        if let Some(key) = key {
            work = work.ordering_key(OrderingKey::new(key).unwrap());
        }
        inbox.enqueue(&work).await.unwrap();
    }
    let owner = OwnerToken::mint(&*db.random());
    let claimed = inbox.claim(owner, Duration::from_secs(60), 10).await.unwrap();
    let leases: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease).collect();
    assert_eq!(inbox.fail(owner, &leases, "cannot be handled").await.unwrap(), 3);
}

/// The value of a field of all items of a list.
pub(crate) fn ids(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["messageId"].as_str().unwrap().to_owned()).collect()
}
