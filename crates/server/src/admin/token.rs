//! Who may do what: bearer tokens and their scopes.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// To look.
    Read,
    /// To look and to change.
    Write,
    /// To send messages, and nothing else.
    Send,
}

impl Scope {
    /// The name in configuration and documentation.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Send => "send",
        }
    }
}

/// A bearer token. The token itself is forgotten at once; what is kept is its hash.
pub(crate) struct Token {
    name: Arc<str>,
    hash: [u8; 32],
    scopes: Vec<Scope>,
}

impl Token {
    /// A token called `name`: the name stands in the audit trail.
    pub(crate) fn new(name: &str, secret: &[u8], scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self { name: name.into(), hash: Sha256::digest(secret).into(), scopes: scopes.into_iter().collect() }
    }

    /// Its name.
    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether it allows what needs this scope.
    pub(super) fn allows(&self, scope: Scope) -> bool {
        // Whoever may change something must see what.
        self.scopes.contains(&scope) || (scope == Scope::Read && self.scopes.contains(&Scope::Write))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("name", &self.name)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

/// All tokens of a node; several may be good at a time, so that one can be exchanged for another. Without any, nobody
/// may do anything.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Vec<Token>);

impl Tokens {
    /// The token that was presented, if it is one of these.
    ///
    /// Hashes are compared, all of them and to their end: neither the length of a token nor how much of it was right
    /// can be told from the time it takes.
    pub(super) fn find(&self, presented: &[u8]) -> Option<&Token> {
        let hash: [u8; 32] = Sha256::digest(presented).into();
        let mut found = u64::MAX;
        for (place, token) in (0_u64..).zip(&self.0) {
            let is_it: Choice = token.hash.ct_eq(&hash);
            found.conditional_assign(&place, is_it);
        }
        usize::try_from(found).ok().and_then(|place| self.0.get(place))
    }
}

impl FromIterator<Token> for Tokens {
    /// A token that is named for several scopes is one, with all of them.
    fn from_iter<I: IntoIterator<Item = Token>>(tokens: I) -> Self {
        let mut all: Vec<Token> = Vec::new();
        for mut token in tokens {
            match all.iter_mut().find(|known| known.hash == token.hash) {
                Some(known) => known.scopes.append(&mut token.scopes),
                None => all.push(token),
            }
        }
        Self(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s17_a_token_is_found_by_its_secret_alone_and_never_shown() {
        let tokens: Tokens =
            [Token::new("old", b"secret-1", [Scope::Read]), Token::new("new", b"secret-2", [Scope::Send])]
                .into_iter()
                .collect();
        let name = |secret: &str| tokens.find(secret.as_bytes()).map(|token| token.name().to_string());
        assert_eq!(name("secret-1").as_deref(), Some("old"));
        assert_eq!(name("secret-2").as_deref(), Some("new"));
        for wrong in ["", "secret", "secret-1 ", "secret-3", "old"] {
            assert_eq!(name(wrong), None, "{wrong:?}");
        }
        assert_eq!(Tokens::default().find(b"").map(Token::name), None);
        let shown = format!("{tokens:?}");
        assert!(!shown.contains("secret") && !shown.contains("hash"), "{shown}");
    }

    #[test]
    fn rf_22_a_token_that_is_named_twice_has_both_scopes() {
        let tokens: Tokens =
            [Token::new("ann", b"secret-1", [Scope::Write]), Token::new("ann", b"secret-1", [Scope::Send])]
                .into_iter()
                .collect();
        let token = tokens.find(b"secret-1").unwrap();
        assert!([Scope::Read, Scope::Write, Scope::Send].into_iter().all(|scope| token.allows(scope)));
    }

    #[test]
    fn rf_22_who_may_write_may_read_and_who_may_send_may_do_nothing_else() {
        let allowed = |scope| {
            let token = Token::new("t", b"s", [scope]);
            [Scope::Read, Scope::Write, Scope::Send].map(|scope| token.allows(scope))
        };
        assert_eq!(allowed(Scope::Read), [true, false, false]);
        assert_eq!(allowed(Scope::Write), [true, true, false]);
        assert_eq!(allowed(Scope::Send), [false, false, true]);
    }
}
