//! Completions for shells and manual pages, both made from the commands themselves.

use std::io::stdout;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{Arguments, Result};

#[derive(Clone, Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// Which shell.
    shell: Shell,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ManArguments {
    /// Writes one page per command into this folder, which is made if need be.
    #[arg(long)]
    folder: Option<PathBuf>,
}

pub(crate) fn completions(arguments: &CompletionsArguments) {
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "twobox", &mut stdout());
}

pub(crate) fn man(arguments: &ManArguments) -> Result<()> {
    match &arguments.folder {
        None => clap_mangen::Man::new(Arguments::command()).render(&mut stdout())?,
        Some(folder) => {
            std::fs::create_dir_all(folder)?;
            clap_mangen::generate_to(Arguments::command(), folder)?;
        }
    }
    Ok(())
}
