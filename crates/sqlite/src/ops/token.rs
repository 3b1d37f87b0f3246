//! Where a listing goes on, as text.

use twobox_core::ports::ops::PageToken;
use twobox_core::{Error, Result};

/// A token of this kind of listing.
pub(super) fn write(kind: char, numbers: &[i64]) -> PageToken {
    let mut text = String::from(kind);
    numbers.iter().for_each(|number| text.push_str(&format!(".{number}")));
    PageToken::new(text)
}

/// The numbers of a token of this kind, exactly as many.
pub(super) fn read<const N: usize>(kind: char, token: Option<&PageToken>) -> Result<Option<[i64; N]>> {
    let Some(token) = token else { return Ok(None) };
    let mut parts = token.as_str().split('.');
    let named = parts.next().is_some_and(|name| name.len() == 1 && name.starts_with(kind));
    let numbers: Option<Vec<i64>> = parts.map(|part| part.parse().ok()).collect();
    let numbers = numbers.filter(|_| named).and_then(|numbers| numbers.try_into().ok());
    let wrong = || Error::invalid("the page token is not one of this listing: begin without a token");
    numbers.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rf_22_a_token_is_read_by_the_listing_that_wrote_it() {
        let token = write('o', &[-7, i64::MAX]);
        assert_eq!(read::<2>('o', Some(&token)).unwrap(), Some([-7, i64::MAX]));
        assert_eq!(read::<2>('o', None).unwrap(), None);
        assert!(read::<2>('i', Some(&token)).is_err(), "another listing's");
        assert!(read::<1>('o', Some(&token)).is_err());
        for bad in ["", "o", "o.1", "o.1.2.3", "o.x.1", "oo.1.2", "o.1.99999999999999999999", "ö.1.2"] {
            assert!(read::<2>('o', Some(&PageToken::new(bad))).is_err(), "{bad:?}");
        }
    }
}
