//! Finds canaries: texts that are put where secrets are, to see whether they come out anywhere (S17).

/// The lines of what was said that hold one of the canaries, plain or in a disguise: hexadecimal, base64, or bytes
/// written as numbers. A canary should be sixteen characters or longer.
#[must_use]
pub fn leaks<'a>(said: &'a str, canaries: &[&str]) -> Vec<&'a str> {
    let disguises: Vec<String> = canaries.iter().flat_map(|canary| disguises(canary)).collect();
    said.lines().filter(|line| disguises.iter().any(|disguise| line.contains(disguise.as_str()))).collect()
}

fn disguises(canary: &str) -> Vec<String> {
    let bytes = canary.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let numbers = |gap: &str| bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(gap);
    // Wherever it stands in what is encoded, one of three cuts gives its whole groups.
    let encoded = (0..3).map(|skip| base64(&bytes[skip.min(bytes.len())..]));
    let plain = [canary.to_owned(), hex.to_uppercase(), hex, numbers(", "), numbers(",")];
    plain.into_iter().chain(encoded).collect()
}

/// The whole groups of three.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |three: &[u8]| {
        let bits = three.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte));
        [18, 12, 6, 0].map(|shift| char::from(LETTERS[(bits >> shift & 63) as usize]))
    };
    bytes.chunks_exact(3).flat_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s17_a_canary_is_found_in_any_disguise() {
        let canaries = ["canary-payload-7f3a", "canary-header-91bc", "canary-panic-c05e"];
        assert!(leaks("all is well\ncanary-like even", &canaries).is_empty());
        for leak in [
            "error=\"cannot handle canary-payload-7f3a\"",
            "b'Y2FuYXJ5LXBheWxvYWQtN2YzYQ=='",
            "ImNhbmFyeS1wYXlsb2FkLTdmM2Ei",
            "[99, 97, 110, 97, 114, 121, 45, 104, 101, 97, 100, 101, 114, 45, 57, 49, 98, 99]",
            "63616e6172792d70616e69632d63303565",
        ] {
            assert_eq!(leaks(&format!("before\n{leak}\nafter"), &canaries), [leak]);
        }
    }
}
