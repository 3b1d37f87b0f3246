//! Numbers in decimal. Formatting them would cost more than what they are for: every signed message has thirty.

/// The decimal digits of a number, with its sign if it is negative.
pub(crate) struct Digits {
    text: [u8; Self::MAX],
    start: usize,
}

/// The numbers below a hundred.
const PAIRS: [[u8; 2]; 100] = {
    let (mut pairs, mut number) = ([[0; 2]; 100], 0);
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1_u8;
    }
    pairs
};

/// Adds a number to a text. Most are the lengths of short texts.
pub(crate) fn push_number(text: &mut Vec<u8>, number: usize) {
    match PAIRS.get(number) {
        Some([_, digit]) if number < 10 => text.push(*digit),
        Some(pair) => text.extend_from_slice(pair),
        None => text.extend_from_slice(Digits::of(number as u64).bytes()),
    }
}

impl Digits {
    /// Of the number with the longest text: `-9223372036854775808`, or the largest without a sign.
    const MAX: usize = 20;

    pub(crate) fn of(mut number: u64) -> Self {
        let mut digits = Self { text: [0; Self::MAX], start: Self::MAX };
        // Two at a time: what takes long is the division.
        while number >= 100 {
            digits.push(number % 100);
            number /= 100;
        }
        digits.push(number);
        digits.start += usize::from(number < 10); // a zero in front
        digits
    }

    /// Adds the two digits of a number below a hundred in front.
    fn push(&mut self, pair: u64) {
        self.start -= 2;
        let pair = &PAIRS[usize::try_from(pair).expect("a number below a hundred is small")];
        self.text[self.start..self.start + 2].copy_from_slice(pair);
    }

    pub(crate) fn of_signed(number: i64) -> Self {
        let mut digits = Self::of(number.unsigned_abs());
        if number < 0 {
            digits.start -= 1;
            digits.text[digits.start] = b'-'; // there may be the zero that was in front
        }
        digits
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.text[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_formatting_would() {
        for number in [0, 1, 9, 10, 99, 100, 101, 999, 1_000, u64::MAX] {
            assert_eq!(Digits::of(number).bytes(), number.to_string().as_bytes());
            let mut text = b"is ".to_vec();
            push_number(&mut text, usize::try_from(number).unwrap());
            assert_eq!(text, format!("is {number}").into_bytes());
        }
        for number in [0, 7, -1, -10, 1_771_070_400_000_000, i64::MAX, i64::MIN] {
            assert_eq!(Digits::of_signed(number).bytes(), number.to_string().as_bytes());
        }
    }
}
