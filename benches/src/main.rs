//! Benchmarks of Twobox. See `docs/BENCHMARKS.md` for what is compared with what, and why.
//!
//! Figures are ratios within one run: the machine's noise is in both halves of a ratio, so most of it cancels.

mod arguments;
mod drain;
mod e2e;
mod enqueue;
mod history;
mod idle;
mod lab;
mod naive;
mod ops;
mod queue;
mod raw;
mod report;
mod rest;
mod scrape;
mod sink;
mod stats;
mod store;
mod syncs;

use std::process::ExitCode;

use twobox_core::BoxError;

use crate::arguments::{Arguments, Command};
use crate::lab::{Lab, Plan};
use crate::report::Report;

/// Every message is allocated by one thread and freed by another, which the system's allocator is slow at.
#[cfg(all(feature = "jemalloc", not(target_env = "msvc")))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What goes wrong here is for people to read.
type Result<T, E = BoxError> = std::result::Result<T, E>;

const USAGE: &str = "\
usage: twobox-bench store|queue|ops|backup|e2e|compare PROGRAM [--json] [--quick] [--count-syncs] [--only PART] [--messages N] [--dir DIR]

  store          what one database does
  queue          what its inbox does as a work queue
  ops            what operators wait for, with a long history in both boxes
  backup         what a backup of a file of 1 GiB costs the end-to-end rate; with --quick of 32 MiB
  e2e            from one process to another, over HTTP
  compare PROGRAM
                 drains, the living load and the trickle of e2e against those of another build of this program, in turns

  --json         results for machines on standard output
  --quick        smaller and shorter: shows that everything works, says little about speed
  --count-syncs  count real syncs of the disk with strace instead of commits
  --only PART    of e2e only drain, live, low-rate or history; of compare only drain, live or low-rate
  --messages N   how long the history of ops is; default: 5000000, 200000 if quick
  --dir DIR      where the databases are put; default: beside this program";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(command) = arguments::parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("twobox-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Store(arguments) => show(store_report(arguments), arguments),
        Command::Queue(arguments) => show(queue_report(arguments), arguments),
        Command::Ops(arguments) => show(ops_report(arguments), arguments),
        Command::Backup(arguments) => show(e2e::backup::report(arguments), arguments),
        Command::E2e(arguments) => show(e2e::report(arguments), arguments),
        Command::Compare(other, arguments) => {
            show(async { e2e::compare::report(other, arguments) }, arguments)
        }
        Command::Part(part) => e2e::play(part),
        Command::Commits(path) => {
            println!("{}", syncs::commits_of(path)?);
            Ok(())
        }
        Command::EnqueueOnce(dir, duration) => {
            println!("{}", runtime()?.block_on(enqueue::once(dir, *duration))?);
            Ok(())
        }
    }
}

/// Measures and shows, unless somebody interrupts it: then nothing is left behind on the disk.
fn show(measuring: impl Future<Output = Result<Report>>, arguments: &Arguments) -> Result<()> {
    let report = runtime()?.block_on(async {
        tokio::select! {
            // First, so that the signal is waited for whatever the measurement does with its thread.
            biased;
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
            report = measuring => report,
        }
    })?;
    if arguments.json {
        println!("{:#}", report.json());
    } else {
        print!("{}", report.table());
    }
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

async fn store_report(arguments: &Arguments) -> Result<Report> {
    let plan = if arguments.quick { Plan::quick() } else { Plan::full() };
    let mut lab = Lab::new(arguments.dir.as_deref(), plan)?;
    let mut report = Report::new(arguments.quick);
    report.extend(enqueue::measure(&mut lab, arguments.count_syncs).await?);
    report.extend(drain::measure(&mut lab).await?);
    report.extend(history::measure(&mut lab).await?);
    report.extend([idle::measure(&mut lab).await?]);
    report.raw(lab.raw_samples());
    Ok(report)
}

async fn queue_report(arguments: &Arguments) -> Result<Report> {
    let plan = if arguments.quick { Plan::quick() } else { Plan::full() };
    let mut lab = Lab::new(arguments.dir.as_deref(), plan)?;
    let mut report = Report::new(arguments.quick);
    report.extend(queue::measure(&mut lab).await?);
    report.raw(lab.raw_samples());
    Ok(report)
}

async fn ops_report(arguments: &Arguments) -> Result<Report> {
    let messages = if arguments.quick { ops::MESSAGES_QUICK } else { ops::MESSAGES };
    let mut lab = Lab::new(arguments.dir.as_deref(), Plan::quick())?;
    let mut report = Report::new(arguments.quick);
    report.extend(ops::measure(&mut lab, arguments.messages.unwrap_or(messages)).await?);
    Ok(report)
}
