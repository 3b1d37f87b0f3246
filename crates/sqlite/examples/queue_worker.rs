//! A process that claims and handles queued messages of the consumer `billing`, beside others on the same file.
//!
//! Starts when a line arrives on its standard input, and ends when nothing is left or it has handled its share. Every
//! fifth claim it lets lie, as if it had died, and handles it much later, when others have had it.
//!
//! `queue_worker DATABASE NAME SHARE`

use std::error::Error;
use std::io::Read;
use std::num::NonZeroU32;
use std::time::Duration;

use twobox_core::ports::{Claim, Claimed, Handled, Job, OwnerToken, Queue, QueueStore};
use twobox_core::{Consumer, Response};
use twobox_sqlite::{Sqlite, SqliteHandler};

const LEASE: Duration = Duration::from_millis(40);
const INSERT: &str = "INSERT INTO effects (id, worker) VALUES (?1, ?2)";

struct Worker {
    db: Sqlite,
    queue: Queue,
    claim: Claim,
    handler: SqliteHandler,
}

impl Worker {
    async fn open(path: &str, name: String) -> Result<Self, Box<dyn Error>> {
        let db = Sqlite::open(path).await?;
        let mut queue = Queue::new(Consumer::new("billing")?);
        // It lets messages lie again and again, and none may die of that.
        queue.retry = queue.retry.attempts_max(NonZeroU32::MAX).base(LEASE / 10).max(LEASE / 10);
        let claim = Claim::new(OwnerToken::mint(&*db.random()), LEASE, 5)?;
        let handler = SqliteHandler::new(move |tx, message| {
            tx.execute(INSERT, [message.id.as_str(), &name])?;
            Ok(Response::empty())
        });
        Ok(Self { db, queue, claim, handler })
    }

    /// Handles messages; returns how many of them it was the one to handle.
    async fn handle(&self, claimed: Vec<Claimed>) -> Result<usize, Box<dyn Error>> {
        let job =
            |Claimed { lease, message, .. }: Claimed| Job { lease, message, handler: self.handler.clone() };
        let jobs = claimed.into_iter().map(job).collect();
        let handled = self.db.handle(&self.queue, self.claim.owner(), jobs).await?;
        Ok(handled.iter().filter(|handled| matches!(handled, Handled::Done(_))).count())
    }

    async fn run(&self, share: usize) -> Result<usize, Box<dyn Error>> {
        let (mut done, mut claims, mut lying) = (0, 0, Vec::new());
        while done < share {
            self.db.reap(&self.queue, 100).await?;
            let claimed = self.db.claim(&self.queue, &self.claim).await?;
            if claimed.is_empty() {
                let Some(next) = self.db.next_work(&self.queue.consumer).await? else { break };
                tokio::time::sleep(next.min(LEASE)).await;
                continue;
            }
            claims += 1;
            if claims % 5 == 0 {
                lying.extend(claimed);
            } else {
                done += self.handle(claimed).await?;
            }
        }
        Ok(done + self.handle(lying).await?)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = || arguments.next().ok_or("usage: queue_worker DATABASE NAME SHARE");
    let (path, name, share) = (argument()?, argument()?, argument()?.parse()?);
    let worker = Worker::open(&path, name).await?;
    std::io::stdin().read_exact(&mut [0])?;
    worker.run(share).await?;
    Ok(())
}
