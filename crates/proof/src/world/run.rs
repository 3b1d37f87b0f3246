//! One run of a world.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use twobox_core::BoxError;
use twobox_sqlite::Durability;
use twobox_testkit::disk::Disk;
use twobox_testkit::history::{Clause, Finding, Summary, check};

use super::authors::Author;
use super::clock::Wall;
use super::network::{Network, Way};
use super::operator::Care;
use super::process::{Node, Process};
use super::stage::{SECOND, Stage, lock};
use super::tally::Tally;
use super::{audit, life, operator, panics, weather};
use crate::powercut::{folder, runtime};

/// What a run is like.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How the stores are opened. Anything but `Full` must be found to lose something.
    pub durability: [Durability; 2],
    /// Messages the first node's author enqueues; the second's has half as many.
    pub messages: u64,
    /// Whether a failed sync may drop pages while another process has the file open. That process goes on reading
    /// from an index of pages that are gone, and nobody can tell it: the database may be damaged, and the damage found.
    pub drops_pages_beside_others: bool,
    /// How long everything goes wrong, in virtual time.
    pub trouble: Duration,
    /// How long may pass after that until everything is delivered, in virtual time.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: [Durability::Full; 2],
            messages: 40,
            drops_pages_beside_others: false,
            trouble: Duration::from_millis(19_200),
            patience: Duration::from_secs(1_000),
        }
    }
}

impl Options {
    /// When a run is over in any case, in virtual time: twice it waits for everything to be settled, and whoever still
    /// waits for something when the trouble is over gets it within that patience as well.
    fn end(&self) -> Duration {
        self.trouble + self.patience * 4
    }
}

/// What a run has come to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What happened, counted.
    pub tally: Tally,
    /// What happened, in order.
    pub history: String,
    /// What was counted by the judge, if nothing was found.
    pub summary: Summary,
    /// What was found, which must be nothing.
    pub violations: Vec<Violation>,
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// What is wrong.
    pub finding: Finding,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, finding } = self;
        write!(f, "{finding}\n  cargo run --release -p twobox-proof -- world --seed {seed}")
    }
}

/// Runs the world of a seed.
///
/// # Errors
/// If the machine has no place for a world. Broken promises are no errors but [`Outcome::violations`], and so are a store
/// that cannot be opened although its disk is well, a part that ends by itself, a process that cannot be ended, a world
/// that does not end.
pub fn run(seed: u64, options: &Options) -> Result<Outcome, BoxError> {
    let folder = folder()?;
    let runtime = runtime()?;
    panics::watch();
    let (stage, played) = runtime.block_on(async {
        let stage = Arc::new(Stage::new(seed));
        let ends = tokio::time::timeout(options.end(), play(&stage, options, folder.path())).await;
        (stage, ends.unwrap_or_else(|_| Err("stuck: it has not ended although it should be over".into())))
    });
    let (summary, mut findings) = match &played {
        Ok(()) => match check(&stage.history, &stage.plan.rules) {
            Ok(summary) => (summary, Vec::new()),
            Err(findings) => (Summary::default(), findings),
        },
        // Its history has no end that could be judged.
        Err(error) => (Summary::default(), vec![broken(twobox_core::chain(&**error))]),
    };
    findings.extend(panics::seen().map(broken));
    let violations = findings.into_iter().map(|finding| Violation { seed, finding }).collect();
    Ok(Outcome { tally: stage.tally(), history: stage.history.text(), summary, violations })
}

fn broken(text: String) -> Finding {
    Finding { clause: Clause::Broken, id: "a node".into(), text }
}

struct World {
    stage: Arc<Stage>,
    nodes: [Arc<Node>; 2],
    network: Arc<Network>,
    authors: [Arc<Author>; 2],
    lives: [JoinHandle<Result<(), BoxError>>; 2],
    patience: Duration,
}

async fn play(stage: &Arc<Stage>, options: &Options, folder: &Path) -> Result<(), BoxError> {
    let names = ["shop", "billing"];
    let nodes = [0, 1].map(|at| {
        Arc::new(Node {
            name: names[at].into(),
            peer: names[1 - at].into(),
            disk: Arc::new(Disk::new(stage.chance())),
            wall: Arc::new(Wall::start()),
            path: folder.join(names[at]).with_extension("db"),
            durability: options.durability[at],
            has_second_relay: at == 0 && stage.plan.two_relays,
            may_drop_pages: at == 1 || !stage.plan.two_relays || options.drops_pages_beside_others,
            running: Mutex::default(),
            cut_wanted: AtomicBool::new(false),
        })
    });
    let ways = [Way::new(&nodes[0], &nodes[1])?, Way::new(&nodes[1], &nodes[0])?];
    let network = Arc::new(Network::new(stage, ways));
    let lives = [0, 1]
        .map(|at| tokio::spawn(life::live(Arc::clone(stage), Arc::clone(&nodes[at]), Arc::clone(&network))));
    let messages = [options.messages, options.messages / 2];
    let authors = [0, 1].map(|at| Author::new(stage, &nodes[at], messages[at]));
    let stage = Arc::clone(stage);
    let mut world = World { stage, nodes, network, authors, lives, patience: options.patience };
    world.go_wrong(options.trouble).await?;
    world.settle().await?;
    // What is settled must survive as well.
    for node in &world.nodes {
        node.cut_wanted.store(true, Ordering::SeqCst);
    }
    tokio::time::sleep(SECOND).await;
    world.settle().await?;
    world.close().await
}

impl World {
    /// Everything goes wrong for a while; then it is made well.
    async fn go_wrong(&mut self, trouble: Duration) -> Result<(), BoxError> {
        let mut troubles = JoinSet::new();
        for at in [0, 1] {
            let (stage, node, network) = (&self.stage, &self.nodes[at], &self.network);
            troubles.spawn(Arc::clone(&self.authors[at]).work());
            troubles.spawn(operator::watch(Arc::clone(stage), Arc::clone(node)));
            troubles.spawn(operator::pauses(Arc::clone(stage), Arc::clone(node)));
            troubles.spawn(weather::clocks(Arc::clone(stage), Arc::clone(node)));
            troubles.spawn(weather::partitions(Arc::clone(network), at));
            troubles.spawn(weather::rotations(Arc::clone(network), at));
        }
        tokio::time::sleep(trouble).await;
        self.stage.heal();
        // Some of it ends only once its node is up again, which one whose life has ended never is.
        while !troubles.is_empty() {
            if let Ok(Some(ended)) = tokio::time::timeout(SECOND, troubles.join_next()).await {
                ended?;
            }
            self.check_lives().await?;
        }
        self.nodes.iter().for_each(|node| node.wall.set_right());
        self.check_lives().await
    }

    /// Waits until everything is delivered or dead, while operators see to dead letters. What is open when the time is
    /// up is found by the judge.
    async fn settle(&mut self) -> Result<(), BoxError> {
        let deadline = Instant::now() + self.patience;
        let (mut pause, mut rounds) = (Duration::from_millis(100), 0);
        while Instant::now() < deadline {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(SECOND);
            self.check_lives().await?;
            // Some dead letters die again: those that are too old whatever is done.
            let care = if rounds < 3 && !self.stage.plan.buries { Care::All } else { Care::Bury };
            rounds += 1;
            let idle = self.see_to_dead_letters(care).await == 0;
            if idle && care == Care::Bury && self.is_settled().await {
                return Ok(());
            }
        }
        if !self.network.is_quiet() {
            return Err("a request never ends".into());
        }
        if !self.authors.iter().all(|author| author.is_idle()) {
            return Err("an author waits for ever".into());
        }
        Ok(())
    }

    async fn is_settled(&self) -> bool {
        if !self.network.is_quiet() || !self.authors.iter().all(|author| author.is_idle()) {
            return false;
        }
        for node in &self.nodes {
            let Some(process) = node.process() else { return false };
            if audit::open_messages(&process).await.map_or(true, |open| open > 0) {
                return false;
            }
        }
        true
    }

    async fn see_to_dead_letters(&self, care: Care) -> u64 {
        let mut done = 0;
        for node in &self.nodes {
            let Some(process) = node.process() else { return 1 };
            done += operator::round(&self.stage, node, &process, care).await.unwrap_or(1);
        }
        done
    }

    /// A life never ends, unless the world itself has failed.
    async fn check_lives(&mut self) -> Result<(), BoxError> {
        for life in &mut self.lives {
            if life.is_finished() {
                return life.await?;
            }
        }
        Ok(())
    }

    /// Reads the databases and ends everything.
    async fn close(self) -> Result<(), BoxError> {
        for life in &self.lives {
            life.abort();
        }
        for node in &self.nodes {
            let process = lock(&node.running).take().ok_or("a node is down at the end")?;
            audit::read(&self.stage, node, &process).await?;
            node.disk.power_off();
            Process::end(process).await?;
            audit::verify(&self.stage, node)?;
        }
        Ok(())
    }
}
