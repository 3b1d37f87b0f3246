//! The writer's queue: callers on one side, the writer on the other, and somebody who closes it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::thread;
use twobox_sqlite::exposed::BareQueue;

use super::explore::{ensure, violated};
use super::place::Place;
use super::time::below;

const PLACES: usize = 2;
const CALLERS: usize = 3;
const JOBS_EACH: usize = 2;
/// The writer's patience when there is nothing to do, and when it waits for callers to come back.
const IDLE: Duration = Duration::from_secs(3600);
const PAUSE: Duration = Duration::from_micros(200);

/// Jobs in the order of their commits: caller and number.
type Committed = Arc<Mutex<Vec<(usize, usize)>>>;

pub(super) fn scenario(_: &Place) {
    let (queue, committed) = (BareQueue::new(PLACES), Committed::default());
    let writer = thread::spawn({
        let queue = queue.clone();
        move || write(&queue)
    });
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (queue, committed) = (queue.clone(), Arc::clone(&committed));
            thread::spawn(move || call(&queue, &committed, caller))
        })
        .collect();
    // Sometimes it is closed while they are at it.
    let answered = if below(3) == 0 {
        queue.close();
        callers.into_iter().map(join).sum::<usize>()
    } else {
        let answered = callers.into_iter().map(join).sum();
        ensure(answered == CALLERS * JOBS_EACH, || format!("only {answered} jobs were answered"));
        queue.close();
        answered
    };
    join(writer);
    let committed = committed.lock().unwrap_or_else(PoisonError::into_inner);
    ensure(committed.len() == answered, || format!("{answered} answers, {} commits", committed.len()));
    for caller in 0..CALLERS {
        let jobs: Vec<_> = committed.iter().filter(|job| job.0 == caller).map(|job| job.1).collect();
        ensure(jobs.is_sorted_by(|a, b| a < b), || {
            format!("the jobs of a caller went in the order {jobs:?}")
        });
    }
}

fn join<T>(thread: thread::JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|_| violated("a thread panicked"))
}

/// Takes groups as the writer's thread does, until the queue is closed and empty.
fn write(queue: &BareQueue) {
    while let Some(group) = queue.take(IDLE) {
        let jobs = group.jobs();
        ensure(jobs <= PLACES, || format!("{jobs} jobs in {PLACES} places"));
        group.finish();
        if jobs > 1 {
            queue.wait(jobs, PAUSE);
        }
    }
}

/// Submits jobs one after the other; how many were answered.
fn call(queue: &BareQueue, committed: &Committed, caller: usize) -> usize {
    let mut answered = 0;
    for job in 0..JOBS_EACH {
        let of_job = Arc::clone(committed);
        let note = move || of_job.lock().unwrap_or_else(PoisonError::into_inner).push((caller, job));
        let commits = || {
            let committed = committed.lock().unwrap_or_else(PoisonError::into_inner);
            committed.iter().filter(|done| **done == (caller, job)).count()
        };
        match block_on(queue.submit(note)) {
            Ok(()) => {
                ensure(commits() == 1, || format!("a job was answered after {} commits", commits()));
                answered += 1;
            }
            Err(error) => ensure(commits() == 0, || format!("committed, and yet refused: {error}")),
        }
    }
    answered
}
