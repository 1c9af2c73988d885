//! Exact sums of columns. A merchant may have fees of any size that nobody pays, so a sum may be beyond the range of an amount.

use std::fmt;
use std::io;

use rust_decimal::Decimal;

use super::table_file::SCALE;

/// The units of one: each value has at most [`SCALE`] fractional digits.
const UNIT: i128 = 10_i128.pow(SCALE);

/// A sum, in units of the last fractional digit. It holds ten billion rows of the largest amount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum(i128);

impl Sum {
    /// Adds a value. One that has more fractional digits than a sum, or a sum beyond all bounds, is an error: nothing is rounded.
    pub(super) fn add(&mut self, value: Decimal) -> io::Result<()> {
        let value = value.normalize();
        let units = SCALE
            .checked_sub(value.scale())
            .and_then(|digits| value.mantissa().checked_mul(10_i128.checked_pow(digits)?));
        let sum = units.and_then(|units| self.0.checked_add(units));
        self.0 =
            sum.ok_or_else(|| io::Error::other(format!("a sum with {value} cannot be written exactly")))?;
        Ok(())
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let units = self.0.unsigned_abs();
        let unit = UNIT.unsigned_abs();
        write!(f, "{sign}{}.{:0width$}", units / unit, units % unit, width = SCALE as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[&str]) -> io::Result<String> {
        let mut sum = Sum::default();
        values.iter().try_for_each(|value| sum.add(value.parse().unwrap()))?;
        Ok(sum.to_string())
    }

    #[test]
    fn sums_are_exact_beyond_the_range_of_an_amount() {
        assert_eq!(sum(&[]).unwrap(), "0.0000000000");
        assert_eq!(sum(&["1", "-1.5", "0.0000000001"]).unwrap(), "-0.4999999999");
        assert_eq!(sum(&["-0.0000000001"]).unwrap(), "-0.0000000001");
        let largest = "999999999999999999.9999999999";
        assert_eq!(sum(&[largest; 8]).unwrap(), "7999999999999999999.9999999992");
        assert_eq!(sum(&[largest; 1_000]).unwrap(), "999999999999999999999.9999999000");
        assert_eq!(sum(&["1.10000000000000"]).unwrap(), "1.1000000000");
    }

    #[test]
    fn what_cannot_be_summed_exactly_is_an_error() {
        assert!(sum(&["0.00000000001"]).is_err());
        assert!(sum(&["79228162514264337593543950335"]).is_err());
    }
}
