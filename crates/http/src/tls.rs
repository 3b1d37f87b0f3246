//! TLS by rustls, with ring as its provider: named explicitly, because a process may contain others.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use twobox_core::{BoxError, Error, ErrorKind, Result};

/// Who a server is: its certificates and its private key.
#[derive(Clone)]
pub struct TlsIdentity(Arc<ServerConfig>);

impl TlsIdentity {
    /// Takes a chain of certificates, the server's own first, and its private key, both as PEM.
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured) if they cannot be read or do not belong together.
    pub fn from_pem(certificates: &[u8], private_key: &[u8]) -> Result<Self> {
        let chain = read_certificates(certificates)?;
        let key = PrivateKeyDer::from_pem_slice(private_key)
            .map_err(|error| misconfigured("the private key is not PEM", error))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| misconfigured("TLS has no versions", error))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| misconfigured("certificates and private key cannot be used together", error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
}

impl fmt::Debug for TlsIdentity {
    /// Shows nothing: there is a private key in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsIdentity(…)")
    }
}

/// Whom a client believes that a server is who it says.
#[derive(Clone)]
pub struct TlsRoots(Arc<ClientConfig>);

impl TlsRoots {
    /// The authorities this machine trusts.
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured) if there are none.
    pub fn of_this_machine() -> Result<Self> {
        let mut roots = RootCertStore::empty();
        // Machines trust many, some of them in forms nobody can read.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self::of(roots)
    }

    /// These authorities and no others, as PEM.
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured) if they cannot be read or there are none.
    pub fn from_pem(certificates: &[u8]) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(certificates)? {
            roots
                .add(certificate)
                .map_err(|error| misconfigured("an authority's certificate cannot be used", error))?;
        }
        Self::of(roots)
    }

    fn of(roots: RootCertStore) -> Result<Self> {
        if roots.is_empty() {
            let text = "no certificate authority is known: install ca-certificates, or name one with TlsRoots::from_pem";
            return Err(Error::new(ErrorKind::Misconfigured, text));
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| misconfigured("TLS has no versions", error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::clone(&self.0))
    }
}

impl fmt::Debug for TlsRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsRoots(…)")
    }
}

fn read_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| misconfigured("the certificates are not PEM", error))?;
    if certificates.is_empty() {
        return Err(Error::new(ErrorKind::Misconfigured, "there is no certificate in the PEM"));
    }
    Ok(certificates)
}

fn misconfigured(text: &'static str, error: impl Into<BoxError>) -> Error {
    Error::new(ErrorKind::Misconfigured, text).with_source(error)
}
