//! Backups: making, looking at and restoring them, and sending again what a restored receiver has forgotten.
//!
//! All of it acts on files. A running node goes on meanwhile, except while it is restored.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;
use twobox::ports::{BackupStore as _, ResendFilter, ResendStore as _};
use twobox::replay::{Bulk, SentMessages};
use twobox::{
    BackupFolder, BackupOptions, BackupProgress, ErrorKind, Existing, Finding, RestoreOptions, Shutdown,
    Sqlite, SystemTimer, Timestamp, VerifyOptions,
};
use twobox_core::ports::ops::AuditEntry;

use super::confirm::Confirm;
use super::failure::Failure;
use super::file::{FileOptions, TheFile, WholeFile, actor};
use super::output::{print, print_json};
use super::progress;
use super::text::{moment, now, thousands, visible};
use crate::Result;
use crate::api::Matched;
use crate::exit::Exit;

/// How far a resend counts before it asks.
const COUNT_MAX: usize = 10_000;
/// The most messages of one batch.
const BATCH_MAX: u32 = 1_000;

/// What can be done with backups.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copies a database, as it is at one point in time, while others read and write.
    Backup(Backup),
    /// Looks whether a backup, or a database, is as it must be.
    Verify(Verify),
    /// Puts a backup in the place of a database, and says what that means.
    Restore(Restore),
    /// Sends again what was acknowledged since a time: for a receiver that was restored and has forgotten it.
    Resend(Resend),
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The file that is to be made; there must be none. Default: one in the folder of the configuration
    /// (backup.folder), named by the time.
    to: Option<PathBuf>,
    #[command(flatten)]
    file: FileOptions,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The backup, or the database. Default: the database of the configuration.
    path: Option<PathBuf>,
    /// Does not compare indexes with tables: several times as fast.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    file: WholeFile,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The backup.
    from: PathBuf,
    /// Keeps a database that is in the place already beside the restored one. Without this it is an error.
    #[arg(long)]
    set_aside: bool,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    file: FileOptions,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Resend {
    /// What was acknowledged at this time or later: when the receiver's backup was made, and some more for clocks that
    /// differ. RFC 3339, or how long ago ("2 h").
    #[arg(long, value_name = "TIME")]
    since: String,
    /// Only to this destination.
    #[arg(long)]
    destination: Option<String>,
    /// Only for this endpoint.
    #[arg(long)]
    endpoint: Option<String>,
    /// Only of this source.
    #[arg(long)]
    source: Option<String>,
    /// Only counts them.
    #[arg(long)]
    dry_run: bool,
    /// Most messages per second.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    file: FileOptions,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// What a backup came to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    path: PathBuf,
    /// Everything that was committed before this time is in it.
    at: String,
}

/// What looking came to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Looked {
    path: PathBuf,
    bytes: u64,
    backup_at: Option<String>,
    sound: bool,
    findings: Vec<Found>,
}

/// Something that is wrong.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    check: String,
    what: String,
    remedy: &'static str,
    count: u64,
    examples: Vec<String>,
}

/// What a restore came to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Restored {
    path: PathBuf,
    backup_at: Option<String>,
    set_aside: Option<PathBuf>,
    meaning: String,
}

/// What a resend came to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Resent {
    dry_run: bool,
    matched: Matched,
    resent: u64,
}

pub(super) async fn run(command: &Command) -> Result<Exit> {
    match command {
        Command::Backup(arguments) => arguments.run().await,
        Command::Verify(arguments) => arguments.run(),
        Command::Restore(arguments) => arguments.run().await,
        Command::Resend(arguments) => arguments.run().await,
    }
}

impl Backup {
    async fn run(&self) -> Result<Exit> {
        let file = self.file.locate()?;
        let db = file.open().await?;
        let bar = progress::bar(0, "pages");
        let told = bar.clone();
        let progress = move |BackupProgress { pages_done, pages }| {
            told.set_length(pages);
            told.set_position(pages_done);
        };
        let options = BackupOptions { progress: Some(Arc::new(progress)), ..BackupOptions::default() };
        let entry = entry("backup", self.to.as_deref().unwrap_or(file.path()), json!({}));
        let making = self.make(&db, file.config.backup.folder.as_deref(), options);
        let made = twobox::audited(&db, &entry, making, |made| json!({ "path": made.path })).await;
        let made = made.map_err(Failure::from)?;
        bar.finish_and_clear();
        if self.json {
            print_json(&made)?;
        } else {
            print(&format!("{} is the database as it was at {}", shown(&made.path), made.at))?;
        }
        Ok(Exit::Done)
    }
}

impl Backup {
    async fn make(&self, db: &Sqlite, folder: Option<&Path>, options: BackupOptions) -> twobox::Result<Made> {
        match (&self.to, folder) {
            (Some(to), _) => {
                let made = db.backup(to, &options).await?;
                Ok(Made { path: made.path, at: made.at.to_rfc3339() })
            }
            (None, Some(folder)) => {
                let made = BackupFolder::new(db, folder)?.options(options).make_backup(now()).await?;
                Ok(Made { path: made.path, at: made.made.to_rfc3339() })
            }
            (None, None) => Err(twobox::Error::invalid(
                "where to? Name a file, or a folder in the configuration (backup.folder)",
            )),
        }
    }
}

impl Verify {
    fn run(&self) -> Result<Exit> {
        let path = match &self.path {
            Some(path) => path.clone(),
            None => self.file.path()?,
        };
        let options = if self.quick { VerifyOptions::Quick } else { VerifyOptions::Full };
        let turning = progress::spinner(format!("looking at {}", shown(&path)));
        let looked = twobox::verify(&path, options);
        turning.finish_and_clear();
        let looked = looked.map_err(Failure::from)?;
        let looked = Looked {
            sound: looked.is_sound(),
            path: looked.path,
            bytes: looked.bytes,
            backup_at: looked.backup_at.map(Timestamp::to_rfc3339),
            findings: looked.findings.into_iter().map(Into::into).collect(),
        };
        if self.json {
            print_json(&looked)?;
        } else {
            looked.show()?;
        }
        Ok(if looked.sound { Exit::Done } else { Exit::Unsound })
    }
}

impl Looked {
    fn show(&self) -> Result<()> {
        let made = self.backup_at.as_ref().map(|at| format!(", a backup of {at}")).unwrap_or_default();
        let state = if self.sound { "is as it must be" } else { "is not as it must be" };
        print(&format!("{} ({}{made}) {state}", shown(&self.path), bytes(self.bytes)))?;
        self.findings.iter().try_for_each(|found| {
            print(&format!("! {} ({}): {}", visible(&found.what), found.count, found.remedy))?;
            found.examples.iter().try_for_each(|example| print(&format!("    {}", visible(example))))
        })
    }
}

impl From<Finding> for Found {
    fn from(finding: Finding) -> Self {
        let Finding { check, what, remedy, count, examples, .. } = finding;
        Self { check: format!("{check:?}"), what, remedy, count, examples }
    }
}

impl Restore {
    async fn run(&self) -> Result<Exit> {
        let file = self.file.locate()?;
        let to = file.path();
        let existing = if self.set_aside { Existing::SetAside } else { Existing::Refuse };
        if self.set_aside && to.exists() {
            self.confirm.ask(&format!("Replace {} by the backup {}?", shown(to), shown(&self.from)))?;
        }
        let options = RestoreOptions { existing, ..RestoreOptions::default() };
        let turning = progress::spinner(format!("restoring {}", shown(to)));
        let restored = twobox::restore(&self.from, to, &options);
        turning.finish_and_clear();
        let restored = restored.map_err(|error| match error.kind() {
            ErrorKind::Busy => Failure::new(Exit::Refused, visible(&error.chain())),
            _ => error.into(),
        })?;
        self.write_down(&file).await;
        let restored = Restored {
            meaning: restored.meaning(),
            path: restored.path,
            backup_at: restored.backup_at.map(Timestamp::to_rfc3339),
            set_aside: restored.set_aside,
        };
        if self.json {
            print_json(&restored)?;
        } else {
            print(&restored.meaning)?;
            if let Some(old) = &restored.set_aside {
                print(&format!("What was there before is {} now.", shown(old)))?;
            }
        }
        Ok(Exit::Done)
    }
}

impl Restore {
    /// The trail is in the database, so the row about it can only be written when it is there.
    async fn write_down(&self, file: &TheFile) {
        let entry = entry("restore", &self.from, json!({ "setAside": self.set_aside }));
        let written = async {
            Ok(twobox::audited(&file.open().await?, &entry, async { Ok(()) }, |()| json!({})).await?)
        };
        let written: std::result::Result<(), Failure> = written.await;
        if let Err(failure) = written {
            eprintln!("twobox: warning: the restore is not in the audit trail: {failure}");
        }
    }
}

impl Resend {
    async fn run(&self) -> Result<Exit> {
        let file = self.file.locate()?;
        let db = file.open().await?;
        let filter = self.filter()?;
        let resendable = db.resendable(&filter, COUNT_MAX).await.map_err(Failure::from)?;
        let matched = counted(resendable.messages);
        for gone in resendable.trimmed {
            let (destination, until) = (visible(gone.destination.as_str()), gone.until.to_rfc3339());
            eprintln!(
                "twobox: warning: what {destination} acknowledged until {until} is no longer in the log"
            );
        }
        if matched.value == 0 || self.dry_run {
            self.tell(&Resent { dry_run: self.dry_run, matched, resent: 0 })?;
            return Ok(super::found(matched.value > 0));
        }
        self.confirm.ask(&format!("Send {} again?", messages(matched)))?;
        let bar = progress::bar(matched.value, "messages");
        let (stop, shutdown) = Shutdown::new();
        let interrupted = tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.request();
            }
        });
        let bulk = Bulk::new(Arc::new(SystemTimer::default()))
            .batch(self.rate.min(BATCH_MAX).try_into()?)
            .per_second(self.rate.try_into()?);
        let sent = SentMessages::resend(db.clone(), filter, file.config.outbox.ttl);
        let doing = bulk.run(sent, shutdown, |progress| bar.set_position(progress.done));
        let entry =
            entry("outbox.resend", Path::new(&self.since), json!({ "destination": self.destination }));
        let done = twobox::audited(&db, &entry, doing, |done| json!({ "resent": done.done })).await;
        interrupted.abort();
        let done = done.map_err(Failure::from)?;
        self.tell(&Resent { dry_run: false, matched, resent: done.done })?;
        Ok(if done.finished { Exit::Done } else { Exit::Unfinished })
    }

    fn filter(&self) -> std::result::Result<ResendFilter, Failure> {
        let since = moment(&self.since)?;
        Ok(ResendFilter {
            since: Timestamp::from_rfc3339(&since).unwrap_or_default(),
            source: self.source.as_deref().map(str::parse).transpose()?,
            destination: self.destination.as_deref().map(str::parse).transpose()?,
            endpoint: self.endpoint.as_deref().map(str::parse).transpose()?,
            ..ResendFilter::default()
        })
    }

    fn tell(&self, resent: &Resent) -> Result<()> {
        if self.json {
            return print_json(resent);
        }
        if resent.matched.value == 0 {
            return Ok(());
        }
        if resent.dry_run {
            return print(&format!("{} match", messages(resent.matched)));
        }
        print(&format!("{} messages are sent again", thousands(resent.resent)))
    }
}

/// What was counted up to the bound.
fn counted(count: u64) -> Matched {
    Matched { value: count, at_least: count >= COUNT_MAX as u64 }
}

fn messages(matched: Matched) -> String {
    let least = if matched.at_least { "at least " } else { "" };
    format!("{least}{} messages", thousands(matched.value))
}

fn entry(action: &str, subject: &Path, detail: serde_json::Value) -> AuditEntry {
    AuditEntry { actor: actor(), action: action.into(), subject: subject.display().to_string(), detail }
}

fn shown(path: &Path) -> String {
    visible(&path.display().to_string())
}

fn bytes(bytes: u64) -> String {
    format!("{} bytes", thousands(bytes))
}
