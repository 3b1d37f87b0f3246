//! A node at work.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use twobox::{Destination, Http, HttpServer, Sqlite, TlsIdentity, TlsRoots, Twobox};
use twobox_core::Live;

use super::hand_over::HandOver;
use super::operators::Operators;
use super::schedule::Schedule;
use crate::Result;
use crate::admin::Tokens;
use crate::config::{Config, Secrets};

/// A node, from its start to its end.
pub(super) struct Running {
    pub(super) config: Config,
    service: Twobox,
    parts: twobox::Running,
    /// By name, to exchange their keys.
    pub(super) transports: BTreeMap<String, Http>,
    pub(super) server: Option<HttpServer>,
    pub(super) tokens: Live<Tokens>,
    operators: Option<Operators>,
    backups: Option<Schedule>,
}

impl Running {
    /// Opens the database, binds what listens, and starts everything.
    pub(super) async fn start(config: Config, secrets: Secrets) -> Result<Self> {
        let db = open(&config).await?;
        let transports = transports(&config, secrets.destinations)?;
        let server = match config.receive.listen {
            Some(_) => Some(server(&config, secrets.sources).await?.meters(db.meters())),
            None => None,
        };
        let service = service(&config, &db, &transports, server.as_ref())?;
        let tokens = Live::new(secrets.tokens);
        // Before anything runs: a port that is taken is an error at the start.
        let listening = Operators::bind(&config).await?;
        let backups = Schedule::start(&config, &db)?;
        let parts = service.start();
        let operators = listening
            .map(|listener| Operators::start(&config, &db, &service, listener, tokens.clone()))
            .transpose()?;
        Ok(Self { config, service, parts, transports, server, tokens, operators, backups })
    }

    /// Finishes or gives back what is in flight, and closes the database. Whether it was finished in time (S20).
    pub(super) async fn stop(self) -> bool {
        let timeout = self.config.node.stop_timeout;
        let stopping = async move {
            let operators = async {
                if let Some(operators) = self.operators {
                    operators.stop().await;
                }
            };
            let backups = async {
                if let Some(backups) = self.backups {
                    backups.stop().await;
                }
            };
            tokio::join!(operators, backups, self.parts.shutdown());
            // Closing waits for the writer, which is a thread.
            let closing = tokio::task::spawn_blocking(move || drop(self.service));
            closing.await.is_ok()
        };
        tokio::time::timeout(timeout, stopping).await.unwrap_or(false)
    }
}

impl fmt::Display for Running {
    /// What a script that has started the node may want to know.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name={}", self.config.node.name)?;
        self.server.iter().try_for_each(|server| write!(f, " listen={}", server.local_addr()))?;
        self.operators.iter().try_for_each(|operators| write!(f, " admin={}", operators.address))
    }
}

async fn open(config: &Config) -> Result<Sqlite> {
    let db = Sqlite::builder()
        .durability(config.node.durability)
        .ttl(config.outbox.ttl)
        .response_bytes_max(config.handler.response_max.0)
        .open(&config.node.database)
        .await?;
    db.migrate().await?;
    Ok(db)
}

fn transports(
    config: &Config,
    mut keyrings: BTreeMap<String, twobox::signing::Keyring>,
) -> Result<BTreeMap<String, Http>> {
    let mut transports = BTreeMap::new();
    for (name, destination) in &config.destinations {
        let http = match keyrings.remove(name) {
            Some(keyring) => Http::signed(&destination.url, keyring)?,
            None => Http::unsigned(&destination.url)?,
        };
        let mut http = http.limits(config.client_limits());
        if let Some(file) = &destination.tls_roots_file {
            http = http.roots(&TlsRoots::from_pem(&std::fs::read(file)?)?);
        }
        transports.insert(name.clone(), http);
    }
    Ok(transports)
}

async fn server(config: &Config, keyrings: twobox::signing::Keyrings) -> Result<HttpServer> {
    let receive = &config.receive;
    let address = receive.listen.ok_or("receive.listen is not set")?;
    let bound = if receive.unsigned {
        HttpServer::unsigned(address).await
    } else {
        HttpServer::signed(address, keyrings).await
    };
    let bound =
        bound.map_err(|error| format!("cannot listen on {address} (receive.listen): {}", error.chain()))?;
    let mut server = bound.limits(config.server_limits());
    for name in &receive.names {
        server = server.also_known_as(Destination::new(name)?);
    }
    if let (Some(certificate), Some(key)) = (&receive.tls_certificate_file, &receive.tls_key_file) {
        server = server.tls(&TlsIdentity::from_pem(&std::fs::read(certificate)?, &std::fs::read(key)?)?);
    }
    Ok(server)
}

fn service(
    config: &Config,
    db: &Sqlite,
    transports: &BTreeMap<String, Http>,
    server: Option<&HttpServer>,
) -> Result<Twobox> {
    let mut builder = Twobox::builder(&config.node.name, db)
        .relay(config.relay_options())
        .worker(config.worker_options())
        .retry(config.handler_retry())
        .sweep(config.sweep_plan(), config.inbox.sweep_interval)
        .payload_bytes_max(config.outbox.payload_max.0);
    for (name, transport) in transports {
        builder = builder.destination(name, transport.clone());
    }
    if let Some(server) = server {
        builder = builder.listen(server.clone());
    }
    let hand_over = Arc::new(HandOver::new(config)?);
    let handler = || {
        let hand_over = Arc::clone(&hand_over);
        move |context| {
            let hand_over = Arc::clone(&hand_over);
            async move { hand_over.handle(context).await }
        }
    };
    for endpoint in hand_over.endpoints() {
        builder = builder.handle_external_raw(endpoint.as_str(), handler());
    }
    if hand_over.has_default() {
        builder = builder.handle_others_external_raw(handler());
    }
    Ok(builder.build()?)
}
