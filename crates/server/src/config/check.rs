//! The configuration checked as a whole (S10): every fault names the settings, where they stand, and the remedy.

use std::net::SocketAddr;
use std::path::Path;

use axum::http::uri::Authority;
use tracing_subscriber::filter::Targets;
use twobox::{Destination, Endpoint, Error, ErrorKind, Http, Source, TlsIdentity, TlsRoots};
use twobox_core::message::PAYLOAD_BYTES_MAX;

use super::keys::entries;
use super::load::{Fault, Loaded};
use crate::serve::Target;

/// The least time in which a node can stop: parts of it get half.
const STOP_TIMEOUT_MIN: std::time::Duration = std::time::Duration::from_millis(100);

/// Everything that is wrong.
pub(crate) fn check(loaded: &Loaded) -> Vec<Fault> {
    let mut check = Check { loaded, faults: Vec::new() };
    check.node();
    check.parts();
    check.destinations();
    check.receive();
    check.handler();
    check.admin();
    check.backup();
    check.faults
}

struct Check<'a> {
    loaded: &'a Loaded,
    faults: Vec<Fault>,
}

impl Check<'_> {
    fn blame(&mut self, path: &str, text: impl Into<String>) {
        self.faults.push(self.loaded.fault(path, text));
    }

    fn node(&mut self) {
        let node = &self.loaded.config.node;
        if node.name.is_empty() {
            self.blame("node.name", "is not set: give the node the name under which its messages travel");
        } else if let Err(error) = Source::new(&node.name) {
            self.blame("node.name", error.to_string());
        }
        if node.database.is_empty() {
            self.blame("node.database", "is empty: name a file");
        }
        if node.stop_timeout < STOP_TIMEOUT_MIN {
            self.blame("node.stop_timeout", "is less than 100 ms: nothing could be finished in it");
        }
        if let Err(error) = self.loaded.config.log.level.parse::<Targets>() {
            self.blame(
                "log.level",
                format!("{error}: write a level, as in \"info\" or \"info,twobox=debug\""),
            );
        }
    }

    /// What the parts themselves say about their options, with the settings that they speak of.
    fn parts(&mut self) {
        let config = &self.loaded.config;
        let relay = config.relay_options().check().and_then(|()| config.client_limits().check());
        self.part(&["outbox", "inbox"], relay);
        let worker = config.worker_options().check().and_then(|()| config.handler_retry().check());
        self.part(&["handler"], worker.and_then(|()| config.handler_limits().check()));
        if self.loaded.config.inbox.sweep_interval.is_zero() {
            self.blame("inbox.sweep_interval", "is zero: write at least \"1 s\"");
        }
    }

    fn part(&mut self, tables: &[&str], checked: Result<(), Error>) {
        let Err(error) = checked else { return };
        let text = error.to_string();
        let entries = entries();
        let spoken_of: Vec<String> = entries
            .iter()
            .filter(|entry| tables.contains(&entry.place().0) && speaks_of(&text, entry.place().1))
            .map(|entry| {
                let value = entry.show(&self.loaded.config);
                format!("\n    {} = {value} ({})", entry.path, self.loaded.origin(&entry.path))
            })
            .collect();
        let (origin, key) = (super::load::Origin::Default, String::new());
        self.faults.push(Fault { origin, key, text: format!("{text}{}", spoken_of.concat()) });
    }

    fn destinations(&mut self) {
        for (name, destination) in &self.loaded.config.destinations {
            let path = format!("destinations.{name}");
            if let Err(error) = Destination::new(name) {
                self.blame(&path, error.to_string());
            }
            if destination.url.is_empty() {
                self.blame(&path, "has no url: write where the service is, as in \"http://127.0.0.1:7400\"");
            } else if let Err(error) = Http::unsigned(&destination.url) {
                self.blame(&format!("{path}.url"), error.to_string());
            }
            match (destination.keys.is_empty(), destination.unsigned) {
                (true, false) => self.blame(
                    &path,
                    "has no keys: add keys = [{ id = \"…\", secret_env = \"…\" }], or unsigned = true for a network \
                     that is yours alone",
                ),
                (false, true) => {
                    self.blame(&format!("{path}.unsigned"), "is true, but there are keys: remove one of the two");
                }
                _ => {}
            }
            if let Some(file) = &destination.tls_roots_file {
                self.pem(&format!("{path}.tls_roots_file"), file, |pem| TlsRoots::from_pem(pem).map(drop));
            }
        }
    }

    fn receive(&mut self) {
        let config = &self.loaded.config;
        let (receive, handler) = (&config.receive, &config.handler);
        let limits = config.server_limits();
        if let Err(error) = limits.check() {
            self.part(&["receive"], Err(error));
        }
        for name in &receive.names {
            if let Err(error) = Destination::new(name) {
                self.blame("receive.names", error.to_string());
            }
        }
        match (&receive.tls_certificate_file, &receive.tls_key_file) {
            (None, None) => {}
            (Some(certificate), Some(key)) => self.identity(certificate, key),
            (Some(_), None) => self.blame("receive.tls_certificate_file", "needs receive.tls_key_file too"),
            (None, Some(_)) => self.blame("receive.tls_key_file", "needs receive.tls_certificate_file too"),
        }
        for (name, source) in &config.sources {
            if source.keys.is_empty() {
                self.blame(
                    &format!("sources.{name}"),
                    "has no keys: add keys = [{ id = \"…\", secret_env = \"…\" }]",
                );
            }
        }
        if receive.unsigned && !config.sources.is_empty() {
            self.blame(
                "receive.unsigned",
                "is true, but there are [sources] with keys: remove one of the two",
            );
        }
        if receive.listen.is_none() {
            return;
        }
        if !receive.unsigned && config.sources.is_empty() {
            self.blame(
                "receive.listen",
                "is set, but nobody could send: add [sources.<name>] with keys, or set receive.unsigned = true for a \
                 network that is yours alone",
            );
        }
        if handler.url.is_empty() && handler.routes.is_empty() {
            self.blame(
                "receive.listen",
                "is set, but nothing would handle what arrives: set handler.url or [handler.routes]",
            );
        }
    }

    fn identity(&mut self, certificate: &Path, key: &Path) {
        let path = "receive.tls_key_file";
        let key = match std::fs::read(key) {
            Ok(key) => key,
            Err(error) => return self.blame(path, format!("cannot read {}: {error}", key.display())),
        };
        self.pem("receive.tls_certificate_file", certificate, |pem| {
            TlsIdentity::from_pem(pem, &key).map(drop)
        });
    }

    fn pem(&mut self, path: &str, file: &Path, read: impl FnOnce(&[u8]) -> Result<(), Error>) {
        let shown = file.display();
        match std::fs::read(file).map(|pem| read(&pem)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.blame(path, format!("{shown}: {}", error.chain())),
            Err(error) => self.blame(path, format!("cannot read {shown}: {error}")),
        }
    }

    fn handler(&mut self) {
        let handler = &self.loaded.config.handler;
        if !handler.url.is_empty() {
            self.target("handler.url", &handler.url);
        }
        for (endpoint, url) in &handler.routes {
            let path = format!("handler.routes.{endpoint}");
            if let Err(error) = Endpoint::new(endpoint) {
                self.blame(&path, error.to_string());
            }
            self.target(&path, url);
        }
        if handler.response_max.0 > PAYLOAD_BYTES_MAX {
            self.blame("handler.response_max", "is more than 1 MiB: no sender reads a larger response");
        }
        for status in &handler.reject_statuses {
            if !(400..=499).contains(status) {
                let text = format!("{status} is no status of a refusal: write 400 to 499");
                self.blame("handler.reject_statuses", text);
            }
        }
    }

    fn target(&mut self, path: &str, url: &str) {
        match Target::new(url) {
            Err(text) => self.blame(path, text),
            Ok(target) if !target.is_loopback() && !self.loaded.config.handler.remote => {
                let text = "leads to another machine, where whoever listens sees what arrives: set handler.remote = \
                            true if that is meant";
                self.blame(path, text);
            }
            Ok(_) => {}
        }
    }

    fn admin(&mut self) {
        let admin = &self.loaded.config.admin;
        let variables = [&admin.read_token_env, &admin.write_token_env, &admin.send_token_env];
        let files = [&admin.read_token_file, &admin.write_token_file, &admin.send_token_file];
        let any = variables.iter().any(|name| !name.is_empty()) || files.iter().any(|file| file.is_some());
        if admin.listen.is_some() && !any {
            self.blame(
                "admin.listen",
                "is set, but nobody has a token: set admin.read_token_env or admin.write_token_env (or …_file), or \
                 admin.listen = \"\" to do without the interface",
            );
        }
        let is_taken =
            |listen: &SocketAddr| Some(*listen) == self.loaded.config.receive.listen && listen.port() != 0;
        if admin.listen.as_ref().is_some_and(is_taken) {
            self.blame("admin.listen", "is the same address as receive.listen: change one of the two");
        }
        // What is compared is the name in the Host header, without its port.
        let is_name = |host: &String| host.parse::<Authority>().is_ok_and(|name| name.host() == host);
        if let Some(host) = admin.hosts.iter().find(|host| !is_name(host)) {
            let text = format!("{host:?} is no name of a host: write it without scheme, port and path");
            self.blame("admin.hosts", text);
        }
        if admin.connections_max == 0 || admin.requests_max == 0 || admin.request_timeout.is_zero() {
            let text = "connections_max, requests_max and request_timeout must be more than nothing, or no request \
                        gets through";
            self.part(&["admin"], Err(Error::new(ErrorKind::Misconfigured, text)));
        }
    }

    fn backup(&mut self) {
        let backup = &self.loaded.config.backup;
        if let Some(folder) = backup.folder.as_ref().filter(|folder| !folder.is_dir()) {
            self.blame("backup.folder", format!("{} is no folder: create it", folder.display()));
        }
        if backup.every.is_zero() {
            self.blame("backup.every", "is zero: write at least \"1 min\"");
        }
        if backup.keep < backup.every {
            self.blame(
                "backup.keep",
                "is shorter than backup.every, so there could be a time without any backup: raise it",
            );
        }
    }
}

/// Whether an error text speaks of a setting, be it by name (`retry_base`) or in words (`retry base`).
fn speaks_of(text: &str, name: Option<&str>) -> bool {
    let Some(name) = name else { return false };
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let speaks = |name: &str| {
        text.match_indices(name).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + name.len()..]);
            !before.ends_with(is_word) && !after.starts_with(is_word)
        })
    };
    let other_name = match name {
        // The policy counts attempts where operators count retries.
        "retries_max" => "attempts_max",
        // Whoever makes a request waits for an answer to it.
        "request_timeout" | "timeout" => "answer_timeout",
        _ => name,
    };
    speaks(name) || speaks(&name.replace('_', " ")) || speaks(other_name)
}
