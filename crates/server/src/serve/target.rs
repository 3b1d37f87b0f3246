//! Where the user's own program is.

use std::fmt;
use std::net::IpAddr;

use twobox::{Call, Endpoint};

/// Stands for the endpoint's name in a URL.
const ENDPOINT: &str = "{endpoint}";

/// The URL that messages are handed to, perhaps with a place for the endpoint's name in its path.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Target(String);

impl Target {
    /// Checks a URL. The error does not show it, because there may be a token in it.
    pub(crate) fn new(url: &str) -> Result<Self, String> {
        if host(url).contains(ENDPOINT) {
            return Err(format!(
                "has {ENDPOINT} in its host: messages could lead it anywhere; put it into the path"
            ));
        }
        Call::check_url(&url.replace(ENDPOINT, "endpoint")).map_err(|error| error.to_string())?;
        Ok(Self(url.into()))
    }

    /// Whether it is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = host(&self.0);
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, _)) => address,
            None => host.split(':').next().unwrap_or_default(),
        };
        name.eq_ignore_ascii_case("localhost")
            || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
    }

    /// The URL for an endpoint; `None` for a name that would lead out of the path.
    pub(super) fn url(&self, endpoint: &Endpoint) -> Option<String> {
        let name = endpoint.as_str();
        let leads_out = matches!(name, "." | "..") && self.0.contains(ENDPOINT);
        (!leads_out).then(|| self.0.replace(ENDPOINT, &escape(name)))
    }
}

impl fmt::Debug for Target {
    /// Shows nothing: there may be a token in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Target(…)")
    }
}

/// Host and port, as they are written.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())]
}

/// Everything but letters, digits and `- . _ ~` as `%XX`, so that a name stays one segment of a path.
pub(crate) fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(target: &str, endpoint: &str) -> Option<String> {
        Target::new(target).unwrap().url(&Endpoint::new(endpoint).unwrap())
    }

    #[test]
    fn s16_an_endpoint_stays_one_segment_of_the_path() {
        let target = "http://127.0.0.1:80/in/{endpoint}?a=1";
        assert_eq!(url(target, "OrderPlaced").unwrap(), "http://127.0.0.1:80/in/OrderPlaced?a=1");
        let odd = url(target, "../a/b?c#d@e é").unwrap();
        assert_eq!(odd, "http://127.0.0.1:80/in/..%2Fa%2Fb%3Fc%23d%40e%20%C3%A9?a=1");
        assert_eq!(url(target, ".."), None);
        assert_eq!(url("http://127.0.0.1/in", "..").unwrap(), "http://127.0.0.1/in");
    }

    #[test]
    fn s16_an_endpoint_cannot_choose_the_host() {
        assert!(Target::new("http://{endpoint}.internal/").is_err());
        assert!(Target::new("http://host:{endpoint}/").is_err());
        let error = Target::new("http://user:canary@host/").err().unwrap();
        assert!(!error.contains("canary"), "{error}");
    }

    #[test]
    fn other_machines_are_told_from_this_one() {
        for here in ["http://127.0.0.1", "http://127.9.9.9:1/x", "http://[::1]:80/x", "http://LocalHost:80?x"]
        {
            assert!(Target::new(here).unwrap().is_loopback(), "{here}");
        }
        for there in ["http://10.0.0.1", "http://localhost.evil", "http://[::2]/", "http://127.0.0.1.evil/"] {
            assert!(!Target::new(there).unwrap().is_loopback(), "{there}");
        }
    }
}
