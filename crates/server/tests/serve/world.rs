//! Two nodes, *shop* and *billing*, each a process of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use twobox::rusqlite::{self, Connection, OptionalExtension as _};
use twobox_testkit::eventually;

/// Longer than anything takes that works.
pub(crate) const EVER: Duration = Duration::from_secs(60);

/// Quick retries, so that tests are.
const QUICK: &str = r#"
[outbox]
retry_base = "20 ms"
retry_jitter = "0 ms"
probe_base = "10 ms"
probe_max = "50 ms"
[handler]
url = "URL"
retry_base = "20 ms"
retry_max = "100 ms"
retry_jitter = "0 ms"
retries_max = 1000
lease = "500 ms"
"#;

/// A folder with the configurations, databases and logs of the nodes.
pub(crate) struct World {
    folder: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap() };
        world.write_key("1");
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the secret of a generation of keys, for both nodes.
    pub(crate) fn write_key(&self, generation: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path(&format!("key-{generation}"));
        std::fs::write(&path, format!("generation {generation} of a secret of 32 bytes\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn keys(&self, generations: &[&str]) -> String {
        let key = |generation: &&str| {
            let file = self.path(&format!("key-{generation}"));
            format!("{{ id = \"shop-{generation}\", secret_file = {:?} }}", file.to_str().unwrap())
        };
        format!("[{}]", generations.iter().map(key).collect::<Vec<_>>().join(", "))
    }

    /// Writes a node's configuration; returns where it is.
    pub(crate) fn configure(&self, name: &str, more: &str) -> PathBuf {
        let path = self.path(&format!("{name}.toml"));
        let database = self.path(&format!("{name}.db"));
        let node = format!("[node]\nname = \"{name}\"\ndatabase = {:?}\n", database.to_str().unwrap());
        std::fs::write(&path, format!("{node}[admin]\nlisten = \"\"\n{more}")).unwrap();
        path
    }

    /// Billing, which receives from shop and hands over to the program.
    pub(crate) fn configure_billing(&self, program: &str, listen: &str, generations: &[&str]) -> PathBuf {
        let keys = self.keys(generations);
        let receive = format!("[receive]\nlisten = \"{listen}\"\n[sources.shop]\nkeys = {keys}\n");
        self.configure("billing", &format!("{}{receive}", QUICK.replace("URL", program)))
    }

    pub(crate) fn configure_shop(&self, billing: SocketAddr, generations: &[&str]) -> PathBuf {
        let keys = self.keys(generations);
        let destination = format!("[destinations.billing]\nurl = \"http://{billing}\"\nkeys = {keys}\n");
        self.configure("shop", &format!("{}{destination}", QUICK.replace("URL", "")))
    }

    /// Starts both, with a program that is at `url`.
    pub(crate) async fn start(&self, url: &str) -> (Node, Node) {
        let billing = Node::start(&self.configure_billing(url, "127.0.0.1:0", &["1"])).await;
        let shop = Node::start(&self.configure_shop(billing.listen(), &["1"])).await;
        (shop, billing)
    }

    fn connection(&self, name: &str) -> Connection {
        let connection = Connection::open(self.path(&format!("{name}.db"))).unwrap();
        connection.busy_timeout(EVER).unwrap();
        connection
    }

    /// Puts messages into shop's outbox, as any program can.
    pub(crate) fn enqueue(&self, ids: impl IntoIterator<Item = String>) {
        let mut connection = self.connection("shop");
        let transaction = connection.transaction().unwrap();
        for id in ids {
            let sql = "INSERT INTO outbox_log (message_id, source, destination, endpoint, payload) \
                       VALUES (?1, 'shop', 'billing', 'OrderPlaced', '{\"order\": 7}')";
            transaction.execute(sql, [id]).unwrap();
        }
        transaction.commit().unwrap();
    }

    /// The first column of the first row.
    pub(crate) fn read<T: rusqlite::types::FromSql>(&self, node: &str, sql: &str) -> Option<T> {
        self.connection(node).query_row(sql, [], |row| row.get(0)).optional().unwrap()
    }

    /// Waits until a count is what it should be.
    pub(crate) async fn until(&self, node: &str, sql: &str, count: i64) {
        eventually(sql, EVER, async || self.read::<i64>(node, sql).filter(|found| *found == count)).await;
    }

    pub(crate) fn log(&self, node: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{node}.log"))).unwrap()
    }

    /// Waits until a line has been logged this many times.
    pub(crate) async fn until_logged(&self, node: &str, line: &str, times: usize) {
        eventually(line, EVER, async || (self.log(node).matches(line).count() >= times).then_some(())).await;
    }
}

fn spawn(command: &mut Command, config: &Path) -> Child {
    let log = std::fs::File::options().append(true).create(true).open(config.with_extension("log")).unwrap();
    command.arg("--config").arg(config).stderr(log).kill_on_drop(true).spawn().unwrap()
}

/// A running `twobox serve`.
pub(crate) struct Node {
    child: Child,
    /// What it said when it was ready.
    said: String,
}

impl Node {
    pub(crate) async fn start(config: &Path) -> Self {
        Self::start_with(config, &[]).await
    }

    pub(crate) async fn start_with(config: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_twobox"));
        command.args(["serve", "--log-level", "info,twobox_http=debug"]).args(flags);
        Self::run(command, config).await
    }

    /// Starts it as systemd does.
    pub(crate) async fn start_notifying(config: &Path, socket: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_twobox"));
        command.arg("serve").env("NOTIFY_SOCKET", socket);
        Self::run(command, config).await
    }

    /// Starts it where nobody can hear that it is ready.
    pub(crate) fn start_unheard(config: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_twobox"));
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let child = spawn(command.arg("serve").stdout(full), config);
        Self { child, said: String::new() }
    }

    /// Starts it by a command that ends in the path of its configuration.
    pub(crate) async fn run(mut command: Command, config: &Path) -> Self {
        let mut child = spawn(command.stdout(Stdio::piped()), config);
        let mut said = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        tokio::time::timeout(EVER, output.read_line(&mut said)).await.unwrap().unwrap();
        assert!(
            said.starts_with("ready "),
            "{}",
            std::fs::read_to_string(config.with_extension("log")).unwrap()
        );
        Self { child, said }
    }

    /// What it said when it was ready.
    pub(crate) fn said(&self) -> &str {
        &self.said
    }

    pub(crate) fn listen(&self) -> SocketAddr {
        let listen = self.said.split_whitespace().find_map(|word| word.strip_prefix("listen=")).unwrap();
        listen.parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap()
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        tokio::time::timeout(EVER, self.child.wait()).await.unwrap().unwrap()
    }

    /// SIGKILL: it gets no chance to do anything.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// SIGTERM, which it obeys.
    pub(crate) async fn stop(mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.ended().await.code(), Some(0));
    }
}
