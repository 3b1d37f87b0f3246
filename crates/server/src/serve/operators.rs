//! The interface for operators of a running node.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use twobox::{Shutdown, ShutdownHandle, Sqlite, Twobox};
use twobox_core::{Live, one_line};

use crate::Result;
use crate::admin::{self, Tokens};
use crate::config::Config;
use crate::node::{AdminLimits, AdminSettings, Node};

/// What serves operators.
pub(super) struct Operators {
    pub(super) address: SocketAddr,
    stop: ShutdownHandle,
    task: JoinHandle<()>,
}

impl Operators {
    /// Binds the address, if operators are to be served.
    pub(super) async fn bind(config: &Config) -> Result<Option<TcpListener>> {
        let Some(address) = config.admin.listen else { return Ok(None) };
        let bound = TcpListener::bind(address).await;
        let bound = bound.map_err(|error| format!("cannot listen on {address} (admin.listen): {error}"))?;
        Ok(Some(bound))
    }

    /// Serves operators from now on.
    pub(super) fn start(
        config: &Config,
        db: &Sqlite,
        service: &Twobox,
        listener: TcpListener,
        tokens: Live<Tokens>,
    ) -> Result<Self> {
        let address = listener.local_addr()?;
        let (node, settings) =
            (Node::new(config, &config.node.name, db, service)?, settings(config, listener, tokens));
        let (stop, mut shutdown) = Shutdown::new();
        let stopped = Box::pin(async move { shutdown.requested().await });
        let task = tokio::spawn(async move {
            if let Err(error) = admin::serve(node, settings, stopped).await {
                tracing::error!(error = one_line(&error), "operators are not served");
            }
        });
        Ok(Self { address, stop, task })
    }

    /// Lets requests finish within their time.
    pub(super) async fn stop(self) {
        self.stop.request();
        if let Err(error) = self.task.await {
            tracing::error!(error = one_line(&error), "what serves operators has failed");
        }
    }
}

fn settings(config: &Config, listener: TcpListener, tokens: Live<Tokens>) -> AdminSettings {
    let admin = &config.admin;
    let limits = AdminLimits {
        connections_max: admin.connections_max,
        requests_max: admin.requests_max,
        request_timeout: admin.request_timeout,
        shutdown_timeout: config.node.stop_timeout / 2,
    };
    AdminSettings { listener, tokens, hosts: admin.hosts.clone(), limits }
}
