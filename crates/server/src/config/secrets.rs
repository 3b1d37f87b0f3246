//! All secrets of a node: the keys it shares with its peers, and the tokens of its operators.

use std::collections::BTreeMap;
use std::path::Path;

use twobox::signing::{Key, KeyId, Keyring, Keyrings, SecretKey};
use twobox_core::Source;

use super::keys::{self, Config};
use super::load::{Fault, Loaded};
use super::secret::Secret;
use crate::admin::{Scope, Token, Tokens};

/// The fewest bytes of a token: it is guessed over the network, by anybody who reaches the port.
const TOKEN_BYTES_MIN: usize = 16;

/// What a node signs, verifies and lets in with.
#[derive(Debug)]
pub(crate) struct Secrets {
    /// By destination; those that are unsigned have none.
    pub(crate) destinations: BTreeMap<String, Keyring>,
    pub(crate) sources: Keyrings,
    pub(crate) tokens: Tokens,
}

impl Config {
    /// Variables that hold secrets: known, whatever they are called.
    pub(super) fn secret_variables(&self) -> Vec<&str> {
        let keys = self.destinations.values().flat_map(|destination| &destination.keys);
        let keys = keys.chain(self.sources.values().flat_map(|source| &source.keys));
        let admin = &self.admin;
        let tokens = [&admin.read_token_env, &admin.write_token_env, &admin.send_token_env];
        keys.map(|key| &*key.secret_env).chain(tokens.map(String::as_str)).collect()
    }
}

impl Secrets {
    /// Reads all of them; every mistake is found.
    pub(crate) fn read(loaded: &Loaded) -> Result<Self, Vec<Fault>> {
        let mut reading = Reading { loaded, faults: Vec::new() };
        let secrets = Self {
            destinations: reading.destinations(),
            sources: reading.sources(),
            tokens: reading.tokens(),
        };
        if reading.faults.is_empty() { Ok(secrets) } else { Err(reading.faults) }
    }
}

struct Reading<'a> {
    loaded: &'a Loaded,
    faults: Vec<Fault>,
}

impl Reading<'_> {
    fn destinations(&mut self) -> BTreeMap<String, Keyring> {
        let destinations = self.loaded.config.destinations.iter();
        let signed = destinations.filter(|(_, destination)| !destination.unsigned);
        signed
            .filter_map(|(name, destination)| {
                let path = format!("destinations.{name}");
                Some((name.clone(), self.keyring(&path, &destination.keys)?))
            })
            .collect()
    }

    fn sources(&mut self) -> Keyrings {
        let mut keyrings = Keyrings::new();
        for (name, source) in &self.loaded.config.sources {
            let path = format!("sources.{name}");
            let Some(keyring) = self.keyring(&path, &source.keys) else { continue };
            let inserted = Source::new(name).and_then(|source| keyrings.insert(&source, keyring));
            if let Err(error) = inserted {
                self.blame(&path, error.to_string());
            }
        }
        keyrings
    }

    /// The keys shared with one peer; `None` if there are none, which the check of the whole blames, or bad ones.
    fn keyring(&mut self, path: &str, keys: &[keys::Key]) -> Option<Keyring> {
        if keys.is_empty() {
            return None;
        }
        let keys: Vec<Option<Key>> = keys
            .iter()
            .enumerate()
            .map(|(place, key)| {
                let path = format!("{path}.keys.{place}");
                Self::key(key).map_err(|text| self.blame(&path, text)).ok()
            })
            .collect();
        let keys: Option<Vec<Key>> = keys.into_iter().collect();
        let keyring = Keyring::new(keys?);
        keyring.map_err(|error| self.blame(&format!("{path}.keys"), error.to_string())).ok()
    }

    fn key(key: &keys::Key) -> Result<Key, String> {
        let id = KeyId::new(&key.id).map_err(|error| error.to_string())?;
        let secret = Secret::read(&key.secret_env, key.secret_file.as_deref())?;
        let secret = secret.ok_or_else(|| {
            format!("key {id} has no secret: name a variable with secret_env or a file with secret_file")
        })?;
        let secret = SecretKey::new(secret.bytes()).map_err(|error| error.to_string())?;
        let mut made = Key::new(id, secret);
        if let Some(first) = key.not_before {
            made = made.not_before(first);
        }
        if let Some(last) = key.not_after {
            made = made.not_after(last);
        }
        Ok(made)
    }

    fn tokens(&mut self) -> Tokens {
        let admin = &self.loaded.config.admin;
        let scopes = [
            (Scope::Read, &admin.read_token_env, &admin.read_token_file),
            (Scope::Write, &admin.write_token_env, &admin.write_token_file),
            (Scope::Send, &admin.send_token_env, &admin.send_token_file),
        ];
        scopes
            .into_iter()
            .flat_map(|(scope, variable, file)| self.of_scope(scope, variable, file.as_deref()))
            .collect()
    }

    /// The tokens of one scope: one per line, perhaps after a name.
    fn of_scope(&mut self, scope: Scope, variable: &str, file: Option<&Path>) -> Vec<Token> {
        let kind = if file.is_some() { "file" } else { "env" };
        let path = format!("admin.{}_token_{kind}", scope.as_str());
        let secret = match Secret::read(variable, file) {
            Ok(Some(secret)) => secret,
            Ok(None) => return Vec::new(),
            Err(text) => {
                self.blame(&path, text);
                return Vec::new();
            }
        };
        let lines = secret.bytes().split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let tokens = lines.filter(|line| !line.is_empty()).map(|line| token(line, scope));
        let tokens: Result<Vec<Token>, String> = tokens.collect();
        tokens.map_err(|text| self.blame(&path, text)).unwrap_or_default()
    }

    fn blame(&mut self, path: &str, text: String) {
        self.faults.push(self.loaded.fault(path, text));
    }
}

fn token(line: &[u8], scope: Scope) -> Result<Token, String> {
    let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
    let (name, secret) = match words.as_slice() {
        [secret] => (scope.as_str(), *secret),
        [name, secret] => (str::from_utf8(name).map_err(|_| "the name of a token is not UTF-8")?, *secret),
        _ => return Err("a line holds more than a name and a token: leave out what is too much".into()),
    };
    if secret.len() < TOKEN_BYTES_MIN {
        return Err(format!("the token is shorter than {TOKEN_BYTES_MIN} characters: choose one at random"));
    }
    Ok(Token::new(name, secret, [scope]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s17_a_line_is_a_token_perhaps_with_a_name_and_is_never_shown() {
        let named = format!("{:?}", token(b"alice 0123456789abcdef", Scope::Read).unwrap());
        assert!(named.contains("alice") && !named.contains("0123"), "{named}");
        let plain = format!("{:?}", token(b"0123456789abcdef", Scope::Send).unwrap());
        assert!(plain.contains("send") && !plain.contains("0123"), "{plain}");
        for wrong in [&b"alice short"[..], b"short", b"a b 0123456789abcdef"] {
            let error = token(wrong, Scope::Write).unwrap_err();
            assert!(!error.contains("0123"), "{error}");
        }
    }
}
