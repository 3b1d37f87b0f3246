//! Where a destination lives.

use hyper::Uri;
use hyper::http::uri::Scheme;
use twobox_core::{Destination, Error, ErrorKind, Result};

use crate::RECEIVE_BATCH;

/// Stands for the destination's name in a URL.
const DESTINATION: &str = "{destination}";

/// The base of a receiver's routes, perhaps with a place for the destination's name.
#[derive(Clone, Debug)]
pub(crate) struct BaseUrl {
    text: String,
    by_name: bool,
    https: bool,
}

impl BaseUrl {
    /// Takes `http://host[:port][/path]`, or `https://…` with the feature `tls`.
    pub(crate) fn new(text: &str) -> Result<Self> {
        let (text, by_name) = (text.trim_end_matches('/').to_owned(), text.contains(DESTINATION));
        let whole = format!("{}{RECEIVE_BATCH}", text.replace(DESTINATION, "destination"));
        let https = check(&whole).map_err(|problem| {
            // The text may hold a password, so it is not shown.
            Error::new(ErrorKind::Misconfigured, format!("the URL of a destination {problem}"))
        })?;
        Ok(Self { text, by_name, https })
    }

    pub(crate) fn is_https(&self) -> bool {
        self.https
    }

    /// The address of `route` at a destination. A name that is put into the address must be fit to be part of a
    /// host name, so that it cannot lead anywhere else.
    pub(crate) fn route(&self, destination: &Destination, route: &str) -> Result<Uri> {
        let base = if self.by_name {
            let name = destination.as_str();
            let fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            if !name.bytes().all(fit) || name.starts_with('-') || name.ends_with('-') || name.len() > 63 {
                return Err(Error::invalid(format!(
                    "destination {name} cannot be part of a URL: map it to a transport of its own"
                )));
            }
            self.text.replace(DESTINATION, name)
        } else {
            self.text.clone()
        };
        format!("{base}{route}").parse().map_err(|error| Error::invalid("not a URL").with_source(error))
    }
}

/// Whether it is https, or what is wrong with it.
pub(crate) fn check(text: &str) -> Result<bool, &'static str> {
    let uri: Uri = text.parse().map_err(|_| "is not a URL: write http://host:port")?;
    let https = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP => false,
        Some(scheme) if *scheme == Scheme::HTTPS && cfg!(feature = "tls") => true,
        Some(scheme) if *scheme == Scheme::HTTPS => return Err("is https, which needs the feature tls"),
        _ => return Err("does not begin with http:// or https://"),
    };
    let authority = uri.authority().ok_or("names no host")?;
    if authority.as_str().contains('@') {
        return Err("holds a user name, which would not be used: remove it");
    }
    if authority.host().is_empty() {
        return Err("names no host");
    }
    // Whatever cannot be read as a port would be taken for none, and the request would go to another one.
    let after_host = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    if !after_host.is_empty() && !after_host.strip_prefix(':').is_some_and(is_port) {
        return Err("has a port that is not a number from 1 to 65535");
    }
    if uri.query().is_some() || text.contains('#') {
        return Err("has a query or a fragment, which would be lost: remove it");
    }
    Ok(https)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(base: &str, destination: &str) -> Result<String> {
        BaseUrl::new(base)?
            .route(&Destination::new(destination).unwrap(), crate::RECEIVE)
            .map(|uri| uri.to_string())
    }

    #[test]
    fn routes_are_appended_to_the_base() {
        assert_eq!(route("http://127.0.0.1:7402", "billing").unwrap(), "http://127.0.0.1:7402/_rf/receive");
        assert_eq!(route("http://[::1]:1/base/", "billing").unwrap(), "http://[::1]:1/base/_rf/receive");
        assert_eq!(
            route("http://{destination}.internal:80", "crm-2").unwrap(),
            "http://crm-2.internal:80/_rf/receive"
        );
    }

    #[test]
    fn s16_a_destination_cannot_lead_a_url_elsewhere() {
        for name in ["evil.example/", "a.b", "a@b", "A", "-a", "a-", "a b", "é", "a:1", &"a".repeat(64)] {
            assert!(route("http://{destination}.internal", name).is_err(), "{name}");
        }
    }

    #[test]
    fn s10_urls_that_cannot_work_are_refused_and_not_shown() {
        let password = "http://user:canary@host";
        let mut urls = vec![
            "",
            "host:80",
            "ftp://host",
            "http://",
            "http:///x",
            "http://h/?a=1",
            "http://h/#a",
            "http://h:",
            "http://h:0",
            "http://h:+1",
            "http://h:65536",
            "http://h:https",
            "http://[::1]:x",
            "http://h:{destination}",
            password,
        ];
        // No room is left for the route.
        let long = format!("http://h/{}", "x".repeat(65_520));
        urls.push(&long);
        if !cfg!(feature = "tls") {
            urls.push("https://host");
        }
        for url in urls {
            let error = BaseUrl::new(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}");
            assert!(!error.chain().contains("canary"));
        }
    }
}
