//! The store with its threads: callers share commits, spoil them for each other, hang up, and close the file.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use shuttle::future::block_on;
use shuttle::thread;
use twobox_core::Error;
use twobox_sqlite::{Sqlite, SqliteTx};

use super::explore::{ensure, violated};
use super::place::{Place, Stranger};
use super::time::{Time, below};

const CALLERS: u32 = 3;
const STEPS: u32 = 2;

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Write,
    /// Writes, then fails.
    Fail,
    /// Writes, then takes the whole shared transaction down.
    Spoil,
    /// Writes, but nobody waits for it.
    HangUp,
}

impl Plan {
    fn choose() -> Self {
        [Self::Write, Self::Write, Self::Write, Self::Fail, Self::Spoil, Self::HangUp][below(6) as usize]
    }

    /// How often its row may be there at the end.
    fn is_fine(self, rows: i64) -> bool {
        match self {
            Self::Write => rows == 1,
            Self::Fail | Self::Spoil => rows == 0,
            Self::HangUp => rows <= 1,
        }
    }
}

pub(super) fn scenario(place: &Place) {
    let (file, time) = (place.file(), Time::default());
    let stranger = file.stranger();
    let db = file.open(&time, |builder| builder.queue_max(2));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (db, stranger) = (db.clone(), stranger.clone());
            thread::spawn(move || call(db, &stranger, caller))
        })
        .collect();
    // The last of them closes the file, which finishes what is queued.
    drop(db);
    for (caller, thread) in (0..).zip(callers) {
        let plans = thread.join().unwrap_or_else(|_| violated("a thread panicked"));
        for (step, plan) in (0..).zip(plans) {
            let rows = rows(&stranger, caller, step);
            ensure(plan.is_fine(rows), || format!("{plan:?} left {rows} rows"));
        }
    }
}

fn rows(stranger: &Stranger, caller: u32, step: u32) -> i64 {
    stranger.number(&format!("SELECT count(*) FROM effects WHERE client = {caller} AND step = {step}"))
}

fn call(db: Sqlite, stranger: &Stranger, caller: u32) -> Vec<Plan> {
    let plans: Vec<_> = (0..STEPS).map(|_| Plan::choose()).collect();
    for (step, &plan) in (0..).zip(&plans) {
        let work = db.transaction::<_, Error, _>(move |tx| work(tx, plan, caller, step));
        if plan == Plan::HangUp {
            let _ = pin!(work).poll(&mut Context::from_waker(Waker::noop()));
            continue;
        }
        let result = block_on(work);
        let rows = rows(stranger, caller, step);
        ensure(result.is_ok() == (plan == Plan::Write), || format!("{plan:?} came to {result:?}"));
        ensure(plan.is_fine(rows), || format!("{plan:?} was answered with {rows} rows visible to others"));
    }
    drop(db);
    plans
}

fn work(tx: &mut SqliteTx<'_>, plan: Plan, caller: u32, step: u32) -> Result<(), Error> {
    tx.execute("INSERT INTO effects VALUES (?1, ?2)", [caller, step])?;
    match plan {
        Plan::Write | Plan::HangUp => Ok(()),
        Plan::Fail => Err(Error::invalid("not wanted")),
        Plan::Spoil => tx.execute("INSERT OR ROLLBACK INTO taken VALUES ('name')", []).map(drop),
    }
}
