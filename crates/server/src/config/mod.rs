//! Configuration: a file, environment variables and flags, checked as a whole.
//!
//! `twobox.toml` beside this crate documents every key with its default and the reason for it.

mod check;
mod keys;
mod lines;
mod load;
mod nearest;
mod options;
mod print;
mod secret;
mod secrets;
mod section;
#[cfg(test)]
mod tests;
mod units;
mod value;

use std::fmt;
use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) use self::keys::{Config, Log, LogFormat, entries};
pub(crate) use self::load::{Fault, Loaded, TOKEN_VARIABLE};
pub(crate) use self::secret::Secret;
pub(crate) use self::secrets::Secrets;
pub(crate) use self::units::parse_duration;

use self::load::{FILE_VARIABLE, Outside};
use crate::Result;

/// The documented defaults.
pub(crate) const DEFAULTS: &str = include_str!("../../twobox.toml");

/// Where the configuration comes from. A flag counts more than a variable, a variable more than the file.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Options {
    /// The configuration file. Default: $TWOBOX_CONFIG, or twobox.toml in the working directory if it exists.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The node's name (node.name).
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The database file (node.database).
    #[arg(long, value_name = "FILE")]
    database: Option<String>,
    /// Where messages are received (receive.listen).
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where operators are served (admin.listen); "" turns it off.
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// Your program, which handles what arrives (handler.url).
    #[arg(long, value_name = "URL")]
    handler_url: Option<String>,
    /// How much is logged (log.level).
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// How it is logged: text or json (log.format).
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Any other setting, as in --set outbox.ttl="2 d".
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
}

/// Commands about the configuration.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Says whether a node could be started with this configuration, secrets included.
    Check(Options),
    /// Shows the configuration in effect, and where each value comes from.
    Print {
        /// Shows the documented file with all defaults instead.
        #[arg(long)]
        default: bool,
        #[command(flatten)]
        options: Options,
    },
}

/// Everything that is wrong with a configuration.
#[derive(Debug)]
pub(crate) struct Faults(pub(crate) Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration cannot be used")?;
        // In the order of the file, however they were found.
        let mut faults: Vec<&Fault> = self.0.iter().collect();
        faults.sort_by_key(|fault| &fault.origin);
        faults.into_iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl std::error::Error for Faults {}

impl Options {
    /// The configuration that a command for operators is about.
    pub(crate) fn of(config: Option<PathBuf>, database: Option<String>) -> Self {
        Self { config, database, ..Self::default() }
    }

    /// The configuration and the secrets it names, all of it checked.
    pub(crate) fn load(&self) -> Result<(Loaded, Secrets), Faults> {
        let loaded = self.load_unchecked()?;
        let mut faults = check::check(&loaded);
        match Secrets::read(&loaded) {
            Ok(secrets) if faults.is_empty() => return Ok((loaded, secrets)),
            Ok(_) => {}
            Err(secret) => faults.extend(secret),
        }
        Err(Faults(faults))
    }

    /// The configuration alone, each value for itself legal.
    pub(crate) fn load_unchecked(&self) -> Result<Loaded, Faults> {
        let named = || std::env::var_os(FILE_VARIABLE).map(PathBuf::from);
        let outside = Outside {
            file: self.config.clone().or_else(named),
            environment: std::env::vars_os().collect(),
            flags: self.flags(),
        };
        Loaded::load(&outside).map_err(Faults)
    }

    fn flags(&self) -> Vec<(String, String, String)> {
        let shortcuts = [
            ("--name", "node.name", &self.name),
            ("--database", "node.database", &self.database),
            ("--listen", "receive.listen", &self.listen),
            ("--admin-listen", "admin.listen", &self.admin_listen),
            ("--handler-url", "handler.url", &self.handler_url),
            ("--log-level", "log.level", &self.log_level),
            ("--log-format", "log.format", &self.log_format),
        ];
        let shortcuts = shortcuts.into_iter().filter_map(|(flag, path, value)| {
            value.as_ref().map(|value| (flag.to_owned(), path.to_owned(), value.clone()))
        });
        let set = self.set.iter().map(|(path, value)| ("--set".to_owned(), path.clone(), value.clone()));
        set.chain(shortcuts).collect()
    }
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, as in outbox.ttl=\"2 d\"")?;
    Ok((key.trim().into(), value.trim().into()))
}

/// Runs a command about the configuration.
pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Check(options) => {
            let (loaded, _) = options.load()?;
            println!("the configuration of {} is good", loaded.config.node.name);
        }
        Command::Print { default: true, .. } => print!("{DEFAULTS}"),
        Command::Print { options, .. } => print!("{}", print::print(&options.load_unchecked()?)),
    }
    Ok(())
}
