//! Numbers in decimal. Formatting them would cost more than what they are for: every signed message has thirty.

/// The decimal digits of a number, with its sign if it is negative.
pub(crate) struct Digits {
    text: [u8; Self::MAX],
    start: usize,
}

impl Digits {
    /// Of the number with the longest text: `-9223372036854775808`, or the largest without a sign.
    const MAX: usize = 20;

    pub(crate) fn of(mut number: u64) -> Self {
        let mut digits = Self { text: [b'-'; Self::MAX], start: Self::MAX };
        // Two at a time: what takes long is the division.
        while number >= 10 {
            let pair = number % 100;
            digits.push(pair % 10);
            digits.push(pair / 10);
            number /= 100;
        }
        if number > 0 || digits.start == Self::MAX {
            digits.push(number);
        }
        digits
    }

    /// Adds a digit in front.
    fn push(&mut self, digit: u64) {
        self.start -= 1;
        self.text[self.start] = b'0' + u8::try_from(digit).expect("a digit is small");
    }

    pub(crate) fn of_signed(number: i64) -> Self {
        let mut digits = Self::of(number.unsigned_abs());
        digits.start -= usize::from(number < 0); // where there are no digits there is a minus
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
        for number in [0, 1, 9, 10, 99, 100, u64::MAX] {
            assert_eq!(Digits::of(number).bytes(), number.to_string().as_bytes());
        }
        for number in [0, 7, -1, -10, 1_771_070_400_000_000, i64::MAX, i64::MIN] {
            assert_eq!(Digits::of_signed(number).bytes(), number.to_string().as_bytes());
        }
    }
}
