//! Delivery by `https://`, under certificates made for the occasion.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use twobox_core::ErrorKind;
use twobox_core::ports::{Answer, DeliveryError, Transport};
use twobox_http::{ClientLimits, Http, HttpServer, ServerLimits, TlsIdentity, TlsRoots};

use crate::fake::{Act, Fake};
use crate::world::{Billing, EVER, Shop, keyring, keyrings, link, message};

/// A certificate authority of our own.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn roots(&self) -> TlsRoots {
        TlsRoots::from_pem(self.pem.as_bytes()).unwrap()
    }

    /// A certificate for these names and its key, both as PEM.
    fn certify(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> [String; 2] {
        let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        [params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem()]
    }

    fn identity(&self, names: &[&str]) -> TlsIdentity {
        let [certificate, key] = self.certify(names, |_| {});
        TlsIdentity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap()
    }
}

const HERE: [&str; 2] = ["127.0.0.1", "localhost"];

async fn billing_as(identity: &TlsIdentity, limits: ServerLimits) -> Billing {
    let server = HttpServer::signed("127.0.0.1:0", keyrings()).await.unwrap();
    Billing::start(server.tls(identity).limits(limits)).await
}

fn https(billing: &Billing, roots: &TlsRoots) -> Http {
    Http::signed(&format!("https://{}", billing.address), keyring()).unwrap().roots(roots)
}

/// What comes of a message that must not arrive.
async fn failure(http: &Http, billing: &Billing) -> DeliveryError {
    let error = http.deliver(&link(), vec![message("m")], EVER).await.unwrap_err();
    assert_eq!(billing.effects().await, 0);
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_14_messages_are_delivered_by_https_signed_from_end_to_end() {
    let authority = Authority::new();
    let billing = billing_as(&authority.identity(&HERE), ServerLimits::default()).await;
    let shop = Shop::start(&[("billing", Arc::new(https(&billing, &authority.roots())))]).await;
    shop.enqueue("billing", "m", 1_000).await;
    shop.until_sent("billing", 1_000).await;
    assert_eq!(billing.effects().await, 1_000);
    let by_name = format!("https://localhost:{}", billing.address.port());
    let http = Http::signed(&by_name, keyring()).unwrap().roots(&authority.roots());
    assert_eq!(http.deliver(&link(), Vec::new(), EVER).await.unwrap(), []);
    // Limits are set before or after roots.
    let http = http.limits(ClientLimits::default());
    assert!(matches!(http.deliver(&link(), vec![message("n")], EVER).await.unwrap()[..], [Answer::Done(_)]));
    shop.stop().await;
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_14_tls_does_not_replace_signatures() {
    let authority = Authority::new();
    let billing = billing_as(&authority.identity(&HERE), ServerLimits::default()).await;
    let unsigned = Http::unsigned(&format!("https://{}", billing.address)).unwrap().roots(&authority.roots());
    let error = failure(&unsigned, &billing).await;
    assert_eq!(error.to_string(), "status 401: signature does not hold");
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_server_that_cannot_prove_who_it_is_gets_nothing() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let [expired, key] = authority.certify(&HERE, |params| params.not_after = date_time_ymd(2000, 1, 1));
    let expired = TlsIdentity::from_pem(expired.as_bytes(), key.as_bytes()).unwrap();
    for (what, identity) in [
        ("of an unknown authority", stranger.identity(&HERE)),
        ("of another host", authority.identity(&["elsewhere.example"])),
        ("expired", expired),
    ] {
        let billing = billing_as(&identity, ServerLimits::default()).await;
        let error = failure(&https(&billing, &authority.roots()), &billing).await;
        assert!(!error.is_ambiguous(), "{what}");
        assert_eq!(error.to_string(), "cannot connect", "{what}");
        billing.stop().await;
    }
    // This machine does not trust an authority that was made a moment ago.
    let billing = billing_as(&authority.identity(&HERE), ServerLimits::default()).await;
    if let Ok(roots) = TlsRoots::of_this_machine() {
        assert!(!failure(&https(&billing, &roots), &billing).await.is_ambiguous());
    }
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_http_and_https_do_not_talk_to_each_other() {
    let authority = Authority::new();
    let secure = billing_as(&authority.identity(&HERE), ServerLimits::default()).await;
    let plain = Http::signed(&secure.url(), keyring()).unwrap();
    let error = failure(&plain, &secure).await;
    assert_eq!(error.to_string(), "the connection broke");
    secure.stop().await;

    let billing = Billing::signed().await;
    let error = failure(&https(&billing, &authority.roots()), &billing).await;
    assert!(!error.is_ambiguous(), "{error}");
    assert_eq!(error.to_string(), "cannot connect");
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_a_handshake_that_stalls_is_cut_by_the_server_after_its_head_timeout() {
    let authority = Authority::new();
    let limits = ServerLimits { head_timeout: Duration::from_secs(2), ..ServerLimits::default() };
    let billing = billing_as(&authority.identity(&HERE), limits).await;
    // Nothing at all, and the beginning of a handshake of 512 bytes.
    for first in [&b""[..], b"\x16\x03\x01\x02\x00\x01\x00"] {
        let begun = tokio::time::Instant::now();
        let mut stream = TcpStream::connect(billing.address).await.unwrap();
        stream.write_all(first).await.unwrap();
        let mut rest = Vec::new();
        // Whether it is closed or reset depends on what had been read by then.
        let ended = tokio::time::timeout(EVER, stream.read_to_end(&mut rest)).await.expect("it is cut");
        assert!(ended.is_err() || rest.is_empty(), "{rest:?}");
        let lasted = begun.elapsed();
        assert!(lasted >= Duration::from_millis(1_900), "not before its time: {lasted:?}");
    }
    let http = https(&billing, &authority.roots());
    assert_eq!(http.deliver(&link(), Vec::new(), EVER).await.unwrap(), [], "others are served");
    billing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_03_a_handshake_that_stalls_is_given_up_by_the_client() {
    let fake = Fake::new(|_| Act::Hang(Vec::new())).await;
    let limits = ClientLimits { connect_timeout: Duration::from_millis(300), ..ClientLimits::default() };
    let url = fake.url().replace("http://", "https://");
    let http = Http::signed(&url, keyring()).unwrap().roots(&Authority::new().roots()).limits(limits);
    let error = http.deliver(&link(), vec![message("m")], EVER).await.unwrap_err();
    assert!(!error.is_ambiguous());
    assert_eq!(error.to_string(), "cannot connect");
    assert_eq!(fake.connections(), 1);
}

#[test]
fn s10_pem_that_cannot_work_is_misconfigured() {
    let authority = Authority::new();
    let [certificate, key] = authority.certify(&HERE, |_| {});
    let [_, other_key] = authority.certify(&HERE, |_| {});
    let broken = "-----BEGIN CERTIFICATE-----\nnot base64!\n-----END CERTIFICATE-----\n";
    let identity = |certificate: &str, key: &str| {
        TlsIdentity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err()
    };
    let errors = [
        identity("", &key),
        identity("certificate", &key),
        identity(broken, &key),
        identity(&key, &key),
        identity(&certificate, ""),
        identity(&certificate, "key"),
        identity(&certificate, &certificate),
        identity(&certificate, &other_key),
        TlsRoots::from_pem(b"").unwrap_err(),
        TlsRoots::from_pem(broken.as_bytes()).unwrap_err(),
        TlsRoots::from_pem(key.as_bytes()).unwrap_err(),
    ];
    for (n, error) in errors.iter().enumerate() {
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{n}: {error}");
    }
    assert!(TlsIdentity::from_pem(certificate.as_bytes(), key.as_bytes()).is_ok());
}

#[test]
fn s10_whoever_names_authorities_needs_none_of_the_machine() {
    // In a process of its own, because where a machine keeps its authorities is told by the environment.
    let delivery = "tls::rf_14_messages_are_delivered_by_https_signed_from_end_to_end";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([delivery, "--exact"])
        .envs([("SSL_CERT_FILE", "/nonexistent"), ("SSL_CERT_DIR", "/nonexistent")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn s17_debug_shows_no_private_key() {
    let identity = Authority::new().identity(&HERE);
    assert_eq!(format!("{identity:?}"), "TlsIdentity(…)");
}
