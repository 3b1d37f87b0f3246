//! The receiver of the failure scenarios (RF-15): a process that a test lets die, and starts again.
//!
//! `rf_15_billing DATABASE EVENTS [GATE]` prints its address and serves until its input ends. It writes one invoice
//! per order, and what it does as lines into EVENTS, which no rollback and no crash takes back:
//!
//! - `ORDER running`: a handler has begun.
//! - `MESSAGE done RESPONSE`, `MESSAGE duplicate RESPONSE`, `MESSAGE in progress` or `MESSAGE not done`: the answer.
//!
//! With a GATE, an address, every handler connects to it and waits until that connection is closed.

mod rf_15;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use twobox::ports::{BoxFuture, Receive};
use twobox::signing::Keyrings;
use twobox::{
    Answer, BoxError, Destination, HttpServer, Link, Listen, Message, Response, Source, Sqlite, Twobox,
};

use crate::rf_15::{BILLING, OrderPlaced, SHOP, end, keyring};

/// A gate that stays closed for longer has been forgotten.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    end(&run().await)
}

async fn run() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (database, events, gate) = match arguments.as_slice() {
        [database, events] => (database, events, None),
        [database, events, gate] => (database, events, Some(gate.clone())),
        _ => return Err("usage: rf_15_billing DATABASE EVENTS [GATE]".into()),
    };
    let (db, events) = (open(database).await?, Events::open(Path::new(events))?);
    let running = events.clone();
    // Nothing but the inbox keeps an order from being invoiced twice, and the answer tells who has done it.
    let billing = Twobox::builder(BILLING, &db)
        .handle(move |tx, placed: OrderPlaced, _context| {
            running.note(&format!("{} running", placed.order))?;
            gate.as_deref().map_or(Ok(()), wait_at)?;
            tx.execute("INSERT INTO invoices VALUES (?1)", [placed.order])?;
            Ok(format!("invoice {} of process {}", placed.order, std::process::id()))
        })
        .build()?;
    let mut keyrings = Keyrings::new();
    keyrings.insert(&Source::new(SHOP)?, keyring()?)?;
    let server = HttpServer::signed("127.0.0.1:0", keyrings).await?;
    println!("{}", server.local_addr());
    // It sends nothing, so it needs neither relay nor sweeper. Without them every commit is that of a message, so
    // that a crash point can be counted.
    let receiver = Telling { receiver: Arc::new(billing.receiver()), events };
    server.serve(Destination::new(BILLING)?, Arc::new(receiver), Box::pin(input_ends())).await;
    Ok(())
}

async fn open(path: &str) -> twobox::Result<Sqlite> {
    let db = Sqlite::open(path).await?;
    db.migrate().await?;
    let create = "CREATE TABLE IF NOT EXISTS invoices (order_id INTEGER NOT NULL)";
    db.transaction::<_, twobox::Error, _>(move |tx| tx.execute(create, [])).await?;
    Ok(db)
}

async fn input_ends() {
    // Nothing is ever written to it, so any end of the read means the same.
    let _: std::io::Result<usize> = tokio::io::stdin().read(&mut [0]).await;
}

/// Shows the test that a handler is running, and lets it go on when the test says so.
fn wait_at(gate: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(gate)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.read(&mut [0]).map(drop)
}

/// What has happened, one line each.
#[derive(Clone)]
struct Events(Arc<File>);

impl Events {
    fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self(Arc::new(File::options().append(true).create(true).open(path)?)))
    }

    /// In one write, so that a line is there as a whole or not at all.
    fn note(&self, line: &str) -> std::io::Result<()> {
        (&*self.0).write_all(format!("{line}\n").as_bytes())
    }
}

/// Notes every answer before it leaves.
struct Telling {
    receiver: Arc<dyn Receive>,
    events: Events,
}

impl Receive for Telling {
    fn receive(
        &self,
        messages: Vec<Arc<Message>>,
        budget: Duration,
    ) -> BoxFuture<'static, twobox::Result<Vec<Answer>>> {
        let (answers, events) = (self.receiver.receive(messages.clone(), budget), self.events.clone());
        Box::pin(async move {
            let answers = answers.await?;
            for (message, answer) in messages.iter().zip(&answers) {
                // A line that is missing fails the test that looks for it.
                let _: std::io::Result<()> = events.note(&format!("{} {}", message.id, outcome(answer)));
            }
            Ok(answers)
        })
    }

    fn meet(&self, link: Option<&Link>) -> BoxFuture<'static, Option<Arc<str>>> {
        self.receiver.meet(link)
    }
}

fn outcome(answer: &Answer) -> String {
    let body = |response: &Option<Response>| {
        let bytes = response.as_ref().map(|response| response.body.as_bytes()).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    match answer {
        Answer::Done(response) => format!("done {}", body(response)),
        Answer::Duplicate(response) => format!("duplicate {}", body(response)),
        Answer::InProgress { .. } => "in progress".into(),
        _ => "not done".into(),
    }
}
