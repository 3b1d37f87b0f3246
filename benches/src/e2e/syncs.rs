//! How many messages share a sync of the receiver's disk during a drain.

use std::path::Path;
use std::process::Command;

use super::Plan;
use super::drain::Round;
use super::pair::Pair;
use crate::Result;
use crate::lab::Lab;
use crate::report::{Figure, Target, Unit};
use crate::stats::median;
use crate::syncs::{per_sync, syncs_in};

pub(crate) fn figure(lab: &mut Lab, plan: &Plan, rounds: &[Round], count_syncs: bool) -> Result<Figure> {
    let per_commit = |round: &Round| per_sync(plan.drain, round.twobox.value.commits.into());
    let samples: Vec<f64> = rounds.iter().map(per_commit).collect::<Result<_>>()?;
    let commits = median(&samples);
    let figure =
        |value| Figure::new("drain, receiver, counted", value, Unit::PerSync).target(Target::AtLeast(300.0));
    if !count_syncs {
        let detail = "commits counted by SQLite; each is one sync, checkpoints aside";
        return Ok(figure(commits).detail(detail.into()).samples(samples));
    }
    eprintln!("drain: counting syncs ...");
    let syncs = traced(lab, plan.drain)?.saturating_sub(traced(lab, 0)?);
    let detail = format!("syncs counted by strace; {commits:.1} per commit untraced");
    Ok(figure(per_sync(plan.drain, syncs)?).detail(detail))
}

/// Syncs of a receiver that is warmed up, receives `messages` and ends.
fn traced(lab: &mut Lab, messages: u64) -> Result<u64> {
    let mut pair = Pair::watched(lab, strace)?;
    pair.fill(messages)?;
    pair.drain()?;
    pair.check()?;
    let folder = pair.stop()?;
    let syncs = syncs_in(&std::fs::read_to_string(folder.join(SUMMARY))?);
    std::fs::remove_dir_all(folder)?;
    Ok(syncs)
}

const SUMMARY: &str = "strace";

/// The filter runs in the kernel, so that other calls run at full speed.
fn strace(folder: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "--seccomp-bpf", "-c", "-e", "trace=fdatasync,fsync", "-o"]);
    command.arg(folder.join(SUMMARY));
    command
}
