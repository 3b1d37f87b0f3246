//! Completions for shells and manual pages, both made from the commands themselves.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::print;
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

pub(crate) fn completions(arguments: &CompletionsArguments) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "twobox", &mut text);
    print(&String::from_utf8_lossy(&text).trim_end())
}

pub(crate) fn man(arguments: &ManArguments) -> Result<()> {
    match &arguments.folder {
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(Arguments::command()).render(&mut text)?;
            print(&String::from_utf8_lossy(&text).trim_end())?;
        }
        Some(folder) => {
            std::fs::create_dir_all(folder)?;
            clap_mangen::generate_to(Arguments::command(), folder)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{Command, ValueEnum as _};

    use super::*;

    /// Every command that is shown, with its whole name.
    fn commands(of: &Command, name: &str, all: &mut Vec<(String, Command)>) {
        for command in of.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = format!("{name}-{}", command.get_name());
            all.push((name.clone(), command.clone()));
            commands(command, &name, all);
        }
    }

    fn all() -> Vec<(String, Command)> {
        let mut all = Vec::new();
        commands(&Arguments::command(), "twobox", &mut all);
        all
    }

    #[test]
    fn rf_22_every_command_and_every_option_has_a_help_text() {
        Arguments::command().debug_assert();
        for (name, command) in all() {
            assert!(command.get_about().is_some(), "{name}");
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                assert!(argument.get_help().is_some(), "{name} {}", argument.get_id());
            }
        }
        let help = Arguments::command().render_help().to_string();
        assert!(help.contains(crate::exit::HELP), "{help}");
    }

    #[test]
    fn rf_22_the_guide_names_every_command() {
        let guide = concat!(include_str!("../../../docs/CLI.md"), include_str!("../../../docs/SERVER.md"));
        for (name, command) in all().into_iter().filter(|(_, command)| !command.has_subcommands()) {
            let spoken = name.replace('-', " ");
            assert!(guide.contains(&spoken), "{spoken}: {:?}", command.get_about());
        }
    }

    #[test]
    fn rf_22_all_shells_complete_all_commands() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "twobox", &mut script);
            let script = String::from_utf8(script).unwrap();
            for (name, command) in all() {
                assert!(script.contains(command.get_name()), "{shell}: {name}");
            }
        }
    }

    #[test]
    fn rf_22_all_commands_have_a_manual_page() {
        let folder = tempfile::tempdir().unwrap();
        man(&ManArguments { folder: Some(folder.path().into()) }).unwrap();
        for (name, _) in all() {
            let page = std::fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap();
            assert!(page.contains("SYNOPSIS"), "{name}");
        }
    }
}
