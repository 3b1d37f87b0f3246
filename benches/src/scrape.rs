//! What a look at the figures costs.

use std::time::Duration;

use twobox_core::meters::LABEL_SETS_MAX;
use twobox_core::system::SystemClock;
use twobox_core::{Clock, Consumer, Destination, Source};
use twobox_engine::prometheus::scrape;
use twobox_sqlite::Sqlite;

use crate::Result;
use crate::lab::timed;
use crate::report::{Figure, Target, Unit, thousands};
use crate::stats::{median, percentile};

const LOOKS: usize = 300;
/// What a look may cost.
const MICROS_MAX: f64 = 1_000.0;
/// Lanes and consumers of a node that talks to many.
const MANY: usize = 32;

/// A node that talks to a few, to many, and to as many as are ever told apart.
pub(crate) async fn measure(db: &Sqlite, clock: &SystemClock) -> Result<Vec<Figure>> {
    eprintln!("scrape ...");
    let few = looks(db, clock, "scrape").await?.target(Target::Below(MICROS_MAX));
    join(db, MANY)?;
    let many = looks(db, clock, "scrape, 32 lanes").await?.target(Target::Below(MICROS_MAX));
    join(db, LABEL_SETS_MAX)?;
    Ok(vec![few, many, looks(db, clock, "scrape, 256 lanes").await?])
}

/// As many lanes and consumers have something to show.
fn join(db: &Sqlite, count: usize) -> Result<()> {
    let meters = db.meters();
    for n in 0..count {
        let (source, destination) = (Source::new("bench")?, Destination::new(format!("destination-{n}"))?);
        meters.lane(&source, &destination).send.took(Duration::from_millis(3), 500);
        meters.inbox(&Consumer::new(format!("consumer-{n}"))?).process.took(Duration::from_millis(3), 500);
    }
    Ok(())
}

async fn looks(db: &Sqlite, clock: &SystemClock, name: &'static str) -> Result<Figure> {
    let (meters, mut micros, mut bytes) = (db.meters(), Vec::with_capacity(LOOKS), 0);
    for _ in 0..LOOKS {
        let look = async { Ok(scrape(db, &meters, clock.now()).await.len()) };
        let (length, time) = timed(clock, look).await?;
        micros.push(time.as_secs_f64() * 1e6);
        bytes = length;
    }
    let slow = percentile(&micros, 99);
    Ok(Figure::new(name, median(&micros), Unit::Micros)
        .detail(format!("p99 {slow:.0} us, {} bytes", thousands(bytes as f64))))
}
