//! Reading keys and tokens again while everything goes on (SIGHUP).

use super::running::Running;
use crate::config::{Config, Options, entries};

impl Running {
    /// Takes over keys and tokens as they are now, and says which other settings have changed and wait for a restart.
    /// If anything is wrong with them, nothing changes.
    pub(super) fn reload(&mut self, options: &Options) {
        let (loaded, secrets) = match options.load() {
            Ok(read) => read,
            Err(faults) => {
                for fault in &faults.0 {
                    tracing::error!(error = fault.to_string(), "keys and tokens are not reloaded");
                }
                return;
            }
        };
        for (name, keyring) in secrets.destinations {
            // A destination that is new, or was unsigned until now, waits for the restart like its other settings.
            if let Some(transport) = self.transports.get(&name) {
                let _: Result<(), _> = transport.replace_keys(keyring);
            }
        }
        if let Some(server) = self.server.as_ref().filter(|_| takes_sources(&self.config, &loaded.config)) {
            let _: Result<(), _> = server.replace_keys(secrets.sources);
        }
        self.tokens.set(secrets.tokens);
        let waiting = waiting(&self.config, &loaded.config);
        tracing::info!("keys and tokens are reloaded");
        if !waiting.is_empty() {
            tracing::warn!(settings = waiting.join(", "), "changed settings that wait for a restart");
        }
    }
}

/// Settings that have changed and are not taken over by a reload.
fn waiting(old: &Config, new: &Config) -> Vec<String> {
    let takes_sources = takes_sources(old, new);
    let strip = |config| without_secrets(config, takes_sources);
    let (old, new) = (strip(old), strip(new));
    let changed = entries().into_iter().filter(|entry| entry.show(&old) != entry.show(&new));
    changed.map(|entry| entry.path).collect()
}

/// Whether the keys of sources are taken over: those of a node that listens, and checks signatures, before and after.
/// Otherwise they wait like the settings that make them needless.
fn takes_sources(old: &Config, new: &Config) -> bool {
    let is_signed = |config: &Config| config.receive.listen.is_some() && !config.receive.unsigned;
    is_signed(old) && is_signed(new)
}

/// The configuration without what a reload takes over.
fn without_secrets(config: &Config, takes_sources: bool) -> Config {
    let mut config = config.clone();
    config.destinations.values_mut().for_each(|destination| destination.keys.clear());
    if takes_sources {
        config.sources.clear();
    }
    config.admin.read_token_env.clear();
    config.admin.read_token_file = None;
    config.admin.write_token_env.clear();
    config.admin.write_token_file = None;
    config.admin.send_token_env.clear();
    config.admin.send_token_file = None;
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reload_leaves_alone_is_named() {
        let mut old = Config::default();
        old.receive.listen = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 7400)));
        let mut new = old.clone();
        new.sources.entry("shop".into()).or_default();
        new.admin.read_token_env = "READ".into();
        assert!(waiting(&old, &new).is_empty());
        new.outbox.retries_max += 1;
        new.destinations.entry("billing".into()).or_default();
        assert_eq!(waiting(&old, &new), ["outbox.retries_max", "destinations"]);
        // Without its sources it would refuse everybody until it is started again.
        let mut unsigned = old.clone();
        unsigned.receive.unsigned = true;
        old.sources.entry("shop".into()).or_default();
        assert_eq!(waiting(&old, &unsigned), ["receive.unsigned", "sources"]);
    }
}
