//! Replaying and purging dead letters: one, those that match, or all.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::Common;
use super::confirm::Confirm;
use super::failure::Failure;
use super::output::{print, print_json};
use super::place::{Place, path};
use super::progress;
use super::text::{thousands, visible};
use crate::Result;
use crate::api::{BulkAnswer, Matched, RetryAnswer};
use crate::exit::Exit;

/// The most dead letters of one call.
const BATCH_MAX: u32 = 1_000;

/// How dead letters are gone through.
#[derive(Clone, Debug, Args)]
pub(crate) struct Terms {
    /// All dead letters: nobody means all by accident.
    #[arg(long)]
    pub(super) all: bool,
    /// Only counts them.
    #[arg(long)]
    dry_run: bool,
    /// Most dead letters per second: leaves the rest of the receiver to everybody else.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    #[command(flatten)]
    confirm: Confirm,
}

/// What is done to them, in words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deed {
    /// As in "Replay 7 dead letters?".
    pub(super) ask: &'static str,
    /// As in "replayed 7 dead letters".
    pub(super) done: &'static str,
}

/// Sends or runs them again.
pub(super) const REPLAY: Deed = Deed { ask: "Replay", done: "replayed" };
/// Removes them.
pub(super) const PURGE: Deed = Deed { ask: "Remove for good", done: "removed" };

/// What varies from call to call.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) all: bool,
    pub(super) dry_run: bool,
    pub(super) limit: Option<u32>,
    pub(super) per_second: Option<u32>,
    pub(super) next: Option<String>,
}

/// Replays one message.
pub(super) async fn retry(common: &Common, box_path: &str, id: &str, body: &impl Serialize) -> Result<Exit> {
    let place = common.open().await?;
    let answer: RetryAnswer = place.post(&path(box_path, id, "/retry")?, body).await?;
    if common.json {
        print_json(&answer)?;
    } else {
        print(&told(REPLAY, answer.replayed))?;
    }
    Ok(Exit::Done)
}

/// Does something to all that match: counts them, asks, and goes on batch by batch at the pace that is wanted.
pub(super) async fn run<R: Serialize>(
    common: &Common,
    route: &str,
    deed: Deed,
    terms: &Terms,
    request: impl Fn(Step) -> R,
) -> Result<Exit> {
    let place = common.open().await?;
    let first = Step {
        all: terms.all,
        dry_run: true,
        limit: Some(terms.rate.min(BATCH_MAX)),
        per_second: Some(terms.rate),
        next: None,
    };
    let counted: BulkAnswer = place.post(route, &request(first.clone())).await?;
    let matched = counted.matched.unwrap_or(Matched { value: 0, at_least: false });
    if matched.value == 0 || terms.dry_run {
        if common.json {
            print_json(&counted)?;
        } else if matched.value > 0 {
            let verb = if matched.value == 1 { "matches" } else { "match" };
            print(&format!("{} {verb}", letters(matched)))?;
        }
        return Ok(super::found(matched.value > 0));
    }
    terms.confirm.ask(&format!("{} {}?", deed.ask, letters(matched)))?;
    let going = Going { place: &place, route, bar: progress::bar(matched.value, "dead letters") };
    let (done, finished) = going.through(Step { dry_run: false, ..first }, request).await?;
    if common.json {
        let answer = BulkAnswer { dry_run: false, matched: Some(matched), done, next: None, wait_ms: 0 };
        print_json(&answer)?;
    } else {
        print(&told(deed, done))?;
    }
    Ok(if finished { Exit::Done } else { Exit::Unfinished })
}

struct Going<'a> {
    place: &'a Place,
    route: &'a str,
    bar: indicatif::ProgressBar,
}

impl Going<'_> {
    /// Goes through all of them; returns how many there were, and whether nobody has interrupted it.
    async fn through<R: Serialize>(
        &self,
        mut step: Step,
        request: impl Fn(Step) -> R,
    ) -> Result<(u64, bool)> {
        // From the beginning: who interrupts it in the middle of a batch is heard when that is through.
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut done = 0;
        loop {
            let answer: std::result::Result<BulkAnswer, Failure> =
                self.place.post(self.route, &request(step.clone())).await;
            let wait = match answer {
                Ok(answer) => {
                    done += answer.done;
                    self.bar.set_position(done);
                    match answer.next {
                        Some(next) => step.next = Some(next),
                        None => return Ok((done, true)),
                    }
                    Duration::from_millis(answer.wait_ms)
                }
                // Somebody else is at it too.
                Err(Failure { retry_after: Some(wait), .. }) => wait,
                Err(failure) => {
                    eprintln!("twobox: {} dead letters were done before it failed", thousands(done));
                    return Err(failure.into());
                }
            };
            // Every batch is a commit: whatever was done stays done.
            tokio::select! {
                biased;
                _ = interrupts.recv() => return Ok((done, false)),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

fn letters(matched: Matched) -> String {
    let least = if matched.at_least { "at least " } else { "" };
    format!("{least}{} dead letter{}", thousands(matched.value), plural(matched.value))
}

fn told(deed: Deed, count: u64) -> String {
    format!("{} {} dead letter{}", deed.done, thousands(count), plural(count))
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Refuses a command that does not say which dead letters it is about.
pub(super) fn check(is_empty: bool, all: bool) -> std::result::Result<(), Failure> {
    match (is_empty, all) {
        (true, false) => Err(Failure::usage("which dead letters? Give an id or a filter, or say --all")),
        (false, true) => Err(Failure::usage("a filter and --all contradict each other: leave one out")),
        _ => Ok(()),
    }
}

/// A reason, as it is shown.
pub(super) fn why(reason: &str, error: Option<&str>) -> String {
    error.map_or_else(|| visible(reason), |error| format!("{}: {}", visible(reason), visible(error)))
}
