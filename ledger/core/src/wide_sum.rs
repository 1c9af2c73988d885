//! Exact sums that may have more digits than a decimal holds. A merchant may have fees of any size that nobody pays, so a sum of
//! amounts may be beyond the 28 digits of [`Decimal`].

use std::fmt;

use rust_decimal::Decimal;
use serde::{Serialize, Serializer};

use crate::money::{Amount, Error, SCALE};

/// One, in units of the last fractional digit.
const ONE: u128 = 10_u128.pow(SCALE);

/// A sum, in units of the last of its ten fractional digits. It holds 10^16 of the largest amounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WideSum(i128);

impl WideSum {
    /// So many units of the last digit, 10^-10 each.
    pub const fn last_digits(count: i128) -> Self {
        Self(count)
    }

    /// The sum of both; an error if it is out of range.
    pub fn plus(self, other: Self) -> Result<Self, Error> {
        self.0.checked_add(other.0).map(Self).ok_or(Error::OutOfRange)
    }

    /// The exact value; an error if a decimal cannot hold it.
    pub fn decimal(self) -> Result<Decimal, Error> {
        Decimal::try_from_i128_with_scale(self.0, SCALE).map_err(|_| Error::OutOfRange)
    }
}

impl TryFrom<Decimal> for WideSum {
    type Error = Error;

    /// The exact value; an error if it has more than ten fractional digits.
    fn try_from(value: Decimal) -> Result<Self, Error> {
        let value = value.normalize();
        let zeros = SCALE.checked_sub(value.scale()).ok_or(Error::TooPrecise)?;
        value.mantissa().checked_mul(10_i128.pow(zeros)).map(Self).ok_or(Error::OutOfRange)
    }
}

impl From<Amount> for WideSum {
    fn from(amount: Amount) -> Self {
        let value = amount.decimal();
        Self(value.mantissa() * 10_i128.pow(SCALE - value.scale()))
    }
}

impl fmt::Display for WideSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let units = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:0width$}", units / ONE, units % ONE, width = SCALE as usize)
    }
}

impl Serialize for WideSum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[&str]) -> Result<WideSum, Error> {
        let decimals = values.iter().map(|value| value.parse::<Decimal>().unwrap());
        decimals.map(WideSum::try_from).try_fold(WideSum::default(), |sum, value| sum.plus(value?))
    }

    #[test]
    fn sums_are_exact_beyond_the_range_of_a_decimal() {
        let shown = |values: &[&str]| sum(values).unwrap().to_string();
        assert_eq!(shown(&[]), "0.0000000000");
        assert_eq!(shown(&["1", "-1.5", "0.0000000001"]), "-0.4999999999");
        assert_eq!(shown(&["-0.0000000001"]), "-0.0000000001");
        let largest = "999999999999999999.9999999999";
        assert_eq!(shown(&[largest; 8]), "7999999999999999999.9999999992");
        assert_eq!(shown(&[largest; 1_000]), "999999999999999999999.9999999000");
        assert_eq!(shown(&["1.10000000000000"]), "1.1000000000");
        assert_eq!(serde_json::to_string(&sum(&["-2.5"]).unwrap()).unwrap(), "\"-2.5000000000\"");
    }

    #[test]
    fn what_cannot_be_summed_exactly_is_an_error() {
        assert_eq!(sum(&["0.00000000001"]), Err(Error::TooPrecise));
        assert_eq!(sum(&["79228162514264337593543950335"]), Err(Error::OutOfRange));
        assert_eq!(WideSum::last_digits(i128::MAX).plus(WideSum::last_digits(1)), Err(Error::OutOfRange));
    }

    #[test]
    fn an_amount_and_its_decimal_are_the_same_sum() {
        for amount in ["0", "-0.1", "0.0000000001", "12.5", "999999999999.9999999999", "-1000000000000"] {
            let amount: Amount = amount.parse().unwrap();
            let sum = WideSum::from(amount);
            assert_eq!(sum.to_string(), amount.to_string());
            assert_eq!((WideSum::try_from(amount.decimal()), sum.decimal()), (Ok(sum), Ok(amount.decimal())));
        }
        assert_eq!(WideSum::last_digits(i128::MAX).decimal(), Err(Error::OutOfRange));
    }
}
