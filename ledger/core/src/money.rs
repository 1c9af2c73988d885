//! Money: exact decimals with ten fractional digits. Invariant: an [`Amount`] never holds more than ten
//! fractional digits, and no arithmetic on it wraps, saturates or touches a float.

use std::fmt;
use std::str::FromStr;

use rust_decimal::{Decimal, RoundingStrategy};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Fractional digits of every amount (completion.md section 1).
pub const SCALE: u32 = 10;

/// Why a text is not an amount, or a calculation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Error {
    /// Not of the form `-?digits[.digits]`.
    #[error("must be a decimal string such as \"12.5\"")]
    Malformed,
    /// More than ten fractional digits.
    #[error("must have at most ten fractional digits")]
    TooPrecise,
    /// Outside ±10^12, or an arithmetic overflow.
    #[error("is out of range")]
    OutOfRange,
}

/// An amount of US dollars with ten fractional digits.
///
/// On the wire and in the log it is a decimal string with exactly ten fractional digits.
///
/// Every constructor normalizes the decimal and keeps it within ±[`Amount::MAX`]: it has no trailing fractional zeros, and
/// zero has neither scale nor sign. The short cuts for zero rely on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Amount(Decimal);

/// Rounds half away from zero to ten digits: the one rounding rule (completion.md section 1). Each line of a
/// charge is rounded once; totals are sums of lines.
pub fn round_line(exact: Decimal) -> Result<Amount, Error> {
    Amount::checked(exact.round_dp_with_strategy(SCALE, RoundingStrategy::MidpointAwayFromZero))
}

impl Amount {
    /// Zero.
    pub const ZERO: Self = Self(Decimal::ZERO);

    /// The largest amount, 10^12. It leaves room for sums within the 28 digits of `Decimal`.
    pub const MAX: Self = Self(Decimal::from_parts(0xd4a5_1000, 0xe8, 0, false, 0));

    /// A tenth of [`Amount::MAX`], 10^11.
    pub const MAX_TENTH: Self = Self(Decimal::from_parts(0x4876_e800, 0x17, 0, false, 0));

    fn checked(value: Decimal) -> Result<Self, Error> {
        if value.abs() > Self::MAX.0 {
            return Err(Error::OutOfRange);
        }
        Ok(Self(value.normalize()))
    }

    /// So many units of the last digit, 10^-10 each.
    pub fn last_digits(count: u32) -> Self {
        Self(Decimal::new(count.into(), SCALE).normalize())
    }

    /// The exact value.
    pub const fn decimal(self) -> Decimal {
        self.0
    }

    /// The sum; an error if it is out of range.
    pub fn plus(self, other: Self) -> Result<Self, Error> {
        if other.is_zero() {
            return Ok(self);
        }
        if self.is_zero() {
            return Ok(other);
        }
        Self::checked(self.0.checked_add(other.0).ok_or(Error::OutOfRange)?)
    }

    /// The difference, which may be negative; an error if it is out of range.
    pub fn minus(self, other: Self) -> Result<Self, Error> {
        if other.is_zero() {
            return Ok(self);
        }
        if self.is_zero() {
            return Ok(Self(-other.0));
        }
        Self::checked(self.0.checked_sub(other.0).ok_or(Error::OutOfRange)?)
    }

    /// The sum of all `amounts`.
    pub fn sum(amounts: impl IntoIterator<Item = Self>) -> Result<Self, Error> {
        amounts.into_iter().try_fold(Self::ZERO, Self::plus)
    }

    /// Returns true if the amount is below zero.
    pub fn is_negative(self) -> bool {
        self.0.is_sign_negative() && !self.0.is_zero()
    }

    /// Returns true if the amount is zero.
    pub fn is_zero(self) -> bool {
        self.0.is_zero()
    }

    /// Returns true if the amount is above zero.
    pub fn is_positive(self) -> bool {
        self.0.is_sign_positive() && !self.0.is_zero()
    }
}

/// The exact sum of two decimals; an error if it needs more than 28 digits. [`Decimal`]'s own addition rounds it then.
pub fn exact_sum(one: Decimal, other: Decimal) -> Result<Decimal, Error> {
    let add = |one: Decimal, other: Decimal| {
        let sum = one.checked_add(other).ok_or(Error::OutOfRange)?;
        // A sum that was rounded has fewer fractional digits than one of its parts.
        Ok((sum, sum.is_zero() || sum.scale() >= one.scale().max(other.scale())))
    };
    match add(one, other)? {
        // A decimal has two zeros, of which one is written with a minus.
        (sum, true) if sum.is_zero() => Ok(sum.abs()),
        (sum, true) => Ok(sum),
        // The digits that it lacks may be zeros.
        (_, false) => match add(one.normalize(), other.normalize())? {
            (sum, true) => Ok(sum),
            (_, false) => Err(Error::OutOfRange),
        },
    }
}

/// A sum over a whole ledger, in dollars: exact, and not limited to the range of one amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Total(Decimal);

impl Total {
    /// The sum plus `amount`; an error beyond 28 digits.
    pub fn plus(self, amount: Amount) -> Result<Self, Error> {
        exact_sum(self.0, amount.0).map(Self)
    }

    /// The sum of two totals; an error beyond 28 digits.
    pub fn and(self, other: Self) -> Result<Self, Error> {
        exact_sum(self.0, other.0).map(Self)
    }

    /// The difference of two totals; an error beyond 28 digits.
    pub fn less(self, other: Self) -> Result<Self, Error> {
        exact_sum(self.0, -other.0).map(Self)
    }

    /// The exact value.
    pub const fn decimal(self) -> Decimal {
        self.0
    }
}

impl Serialize for Total {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:.10}", self.0))
    }
}

impl<'de> Deserialize<'de> for Total {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <Decimal as Deserialize>::deserialize(deserializer).map(Self)
    }
}

impl FromStr for Amount {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse_short(text).map_or_else(|| Self::checked(parse_decimal(text, SCALE)?), |short| Ok(Self(short)))
    }
}

/// The most digits before the point that [`parse_short`] reads: with [`SCALE`] after it, they fit an `i64`.
const SHORT_WHOLE: usize = 8;

/// Reads an amount of few digits without a check of its range, as nearly all are. Reading events parses twenty amounts
/// for each call. `None` for any other text, also for one that is no amount.
fn parse_short(text: &str) -> Option<Decimal> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    if whole.is_empty() || whole.len() > SHORT_WHOLE || fraction.is_empty() || fraction.len() > SCALE as usize
    {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let mut number = 0_i64;
    for digit in whole.bytes().chain(fraction.bytes()) {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i64::from(digit - b'0');
    }
    let scale = u32::try_from(fraction.len()).ok()?;
    match (number, digits.len() == text.len()) {
        (0, _) => Some(Decimal::ZERO),
        (_, true) => Some(Decimal::new(number, scale)),
        (_, false) => Some(Decimal::new(-number, scale)),
    }
}

/// Reads `-?digits[.digits]` with at most `max_scale` fractional digits; no exponent, no sign `+`, no blanks.
pub fn parse_decimal(text: &str, max_scale: u32) -> Result<Decimal, Error> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !plain(whole) || !plain(fraction) || text.len() > 64 {
        return Err(Error::Malformed);
    }
    if fraction.trim_end_matches('0').len() > max_scale as usize {
        return Err(Error::TooPrecise);
    }
    let short = text.trim_end_matches(|c| c == '0' && text.contains('.'));
    Decimal::from_str_exact(short.strip_suffix('.').unwrap_or(short)).map_err(|_| Error::OutOfRange)
}

/// One dollar, in units of an amount's last digit.
const ONE: u128 = 10_u128.pow(SCALE);

/// The most bytes of the text of an amount: a minus, 13 digits, a point and the fractional digits.
const LONGEST_TEXT: usize = 1 + 13 + 1 + SCALE as usize;

/// [`ONE`], for amounts whose last digits fit a `u64`.
const SHORT_ONE: u64 = 10_u64.pow(SCALE);

/// The units of an amount's last digit in one of a decimal's last digit, by the decimal's scale.
const LAST_DIGITS: [u64; SCALE as usize + 1] = {
    let mut units = [SHORT_ONE; SCALE as usize + 1];
    let mut scale = 1;
    while scale < units.len() {
        units[scale] = units[scale - 1] / 10;
        scale += 1;
    }
    units
};

/// Writes the text of `amount`, of which an event has a dozen, without the machinery of formats.
fn text_of(amount: Amount, buffer: &mut [u8; LONGEST_TEXT]) -> &str {
    if amount.is_zero() {
        return "0.0000000000";
    }
    let (whole, fraction) = short_parts(amount).unwrap_or_else(|| parts(amount));
    write_text(amount.0.is_sign_negative(), whole, fraction, buffer)
}

/// The digits of `amount` before its point, and those after it, in units of its last digit.
fn parts(amount: Amount) -> (u64, u64) {
    let last_digits = amount.0.mantissa().unsigned_abs() * 10_u128.pow(SCALE - amount.0.scale());
    let whole = u64::try_from(last_digits / ONE).expect("an amount has at most 13 digits before its point");
    (whole, u64::try_from(last_digits % ONE).expect("ten digits"))
}

/// As [`parts`], of an amount below about 1.8 * 10^9, which nearly all are; `None` for any other.
fn short_parts(amount: Amount) -> Option<(u64, u64)> {
    let mantissa = u64::try_from(amount.0.mantissa().unsigned_abs()).ok()?;
    let scale = usize::try_from(amount.0.scale()).ok()?;
    let last_digits = mantissa.checked_mul(*LAST_DIGITS.get(scale)?)?;
    Some((last_digits / SHORT_ONE, last_digits % SHORT_ONE))
}

fn write_text(is_negative: bool, whole: u64, fraction: u64, buffer: &mut [u8; LONGEST_TEXT]) -> &str {
    let mut at = LONGEST_TEXT;
    let mut put = |byte: u8| {
        at -= 1;
        buffer[at] = byte;
    };
    // From the last digit on.
    let mut rest = fraction;
    for _ in 0..SCALE {
        put(digit(rest));
        rest /= 10;
    }
    put(b'.');
    rest = whole;
    loop {
        put(digit(rest));
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if is_negative {
        put(b'-');
    }
    std::str::from_utf8(&buffer[at..]).expect("digits are ASCII")
}

/// The last digit of `number`.
fn digit(number: u64) -> u8 {
    b'0' + u8::try_from(number % 10).expect("a digit")
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(text_of(*self, &mut [0; LONGEST_TEXT]))
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text_of(*self, &mut [0; LONGEST_TEXT]))
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::text::parsed(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amount(text: &str) -> Amount {
        text.parse().unwrap()
    }

    #[test]
    fn amounts_show_exactly_ten_digits() {
        assert_eq!(amount("5").to_string(), "5.0000000000");
        assert_eq!(amount("-0.1").to_string(), "-0.1000000000");
        assert_eq!(amount("0.0000000001").to_string(), "0.0000000001");
        assert_eq!(amount("100").to_string(), "100.0000000000");
        assert_eq!(amount("1.50000000000000").to_string(), "1.5000000000");
        assert_eq!(amount("-0").to_string(), "0.0000000000");
    }

    #[test]
    fn the_text_of_an_amount_is_that_of_its_decimal() {
        let digits = (0..=10).map(|scale| Decimal::new(1, scale));
        let amounts = digits.flat_map(|digit| {
            [1_i64, 9, 10, 99, 12_345_678_901].map(|times| Amount::checked(digit * Decimal::from(times)))
        });
        let amounts = amounts.filter_map(Result::ok).chain([Amount::ZERO, Amount::MAX, Amount::MAX_TENTH]);
        let last = Amount::last_digits(1);
        for amount in amounts.flat_map(|amount| [Ok(amount), amount.minus(last)]).map(Result::unwrap) {
            for amount in [amount, Amount::ZERO.minus(amount).unwrap()] {
                assert_eq!(amount.to_string(), format!("{:.10}", amount.decimal()));
                assert_eq!(serde_json::to_string(&amount).unwrap(), format!("\"{amount}\""));
                assert_eq!(amount.to_string().parse(), Ok(amount));
            }
        }
    }

    /// The text without a short cut for zero or for few digits.
    fn general_text(amount: Amount) -> String {
        let (whole, fraction) = parts(amount);
        write_text(amount.0.is_sign_negative(), whole, fraction, &mut [0; LONGEST_TEXT]).to_owned()
    }

    fn general_sum(one: Amount, other: Amount) -> Result<Amount, Error> {
        Amount::checked(one.0.checked_add(other.0).ok_or(Error::OutOfRange)?)
    }

    fn general_difference(one: Amount, other: Amount) -> Result<Amount, Error> {
        Amount::checked(one.0.checked_sub(other.0).ok_or(Error::OutOfRange)?)
    }

    /// The bits of an amount: equal decimals may differ in scale and sign.
    fn bits(amount: Amount) -> [u8; 16] {
        amount.0.serialize()
    }

    fn check_text(amount: Amount) {
        assert_eq!(amount.to_string(), general_text(amount));
        assert_eq!(amount.to_string(), format!("{:.10}", amount.decimal()));
        assert_eq!(serde_json::to_string(&amount).unwrap(), format!("\"{amount}\""));
        assert_eq!(amount.to_string().parse::<Amount>().map(bits), Ok(bits(amount)));
        assert_eq!(bits(amount), bits(Amount(amount.0.normalize())), "{amount} is normalized");
        assert!(amount.0.abs() <= Amount::MAX.0, "{amount} is in range");
    }

    fn check_sums(one: Amount, other: Amount) {
        for (one, other) in [(one, other), (other, one)] {
            let (sum, difference) = (general_sum(one, other), general_difference(one, other));
            assert_eq!(one.plus(other).map(bits), sum.map(bits), "{one} + {other}");
            assert_eq!(one.minus(other).map(bits), difference.map(bits), "{one} - {other}");
        }
    }

    /// Every way to zero, extremes, and the amounts on both sides of the border of [`short_parts`], with both signs.
    fn borders() -> Vec<Amount> {
        let (one, last) = (amount("1.5"), Amount::last_digits(1));
        let short = amount("1844674407.3709551615");
        assert!(short_parts(short).is_some() && short_parts(short.plus(last).unwrap()).is_none());
        let below_zero = round_line(Decimal::new(-1, 12)).unwrap();
        let zeros = [Amount::ZERO, Amount::default(), amount("-0"), amount("-0.0000000000"), below_zero];
        let zeros = zeros.into_iter().chain([one.minus(one).unwrap(), Amount::last_digits(0)]);
        let zeros: Vec<_> = zeros.collect();
        assert!(zeros.iter().all(|zero| bits(*zero) == bits(Amount::ZERO)), "{zeros:?}");
        let others = [
            one,
            last,
            short,
            short.plus(last).unwrap(),
            Amount::last_digits(u32::MAX),
            Amount::MAX_TENTH,
            Amount::MAX.minus(last).unwrap(),
            Amount::MAX,
        ];
        let negative = others.iter().map(|other| Amount::ZERO.minus(*other).unwrap());
        zeros.into_iter().chain(negative).chain(others.iter().copied()).collect()
    }

    #[test]
    fn short_cuts_at_the_borders_are_as_the_general_form() {
        for one in borders() {
            check_text(one);
            for other in borders() {
                check_sums(one, other);
            }
        }
    }

    /// An amount of any size: so many units of its last digit, of which the last ones are often zeros.
    fn any_amount() -> impl Strategy<Value = Amount> {
        let most = 10_i128.pow(22);
        (-most..=most, 0_u32..23, 0_u32..23).prop_map(|(units, size, zeros)| {
            let units = units / 10_i128.pow(size) / 10_i128.pow(zeros) * 10_i128.pow(zeros);
            Amount::checked(Decimal::from_i128_with_scale(units, SCALE)).unwrap()
        })
    }

    proptest! {
        #[test]
        fn short_cuts_are_as_the_general_form(one in any_amount(), other in any_amount()) {
            check_text(one);
            check_sums(one, other);
            check_sums(one, Amount::ZERO);
        }
    }

    #[test]
    fn what_is_not_a_plain_decimal_is_refused() {
        for text in ["", "-", ".5", "5.", "+5", "1e3", "NaN", "1 ", " 1", "1_000", "0x1", "1.2.3", "٣"] {
            assert_eq!(text.parse::<Amount>(), Err(Error::Malformed), "{text:?}");
        }
        assert_eq!("0.00000000001".parse::<Amount>(), Err(Error::TooPrecise));
        assert_eq!("1000000000001".parse::<Amount>(), Err(Error::OutOfRange));
        assert_eq!("99999999999999999999999999999999999".parse::<Amount>(), Err(Error::OutOfRange));
    }

    #[test]
    fn a_short_text_is_read_as_any_other() {
        for text in [
            "0",
            "-0",
            "0.0",
            "-0.0000000000",
            "00",
            "007",
            "1",
            "-1",
            "12345678",
            "123456789",
            "0.1",
            "-0.1",
            "1.50",
            "1.5000000000",
            "0.0000000001",
            "-0.0000000001",
            "99999999.9999999999",
            "100",
            "100.0",
            "1.00000000001",
            "",
            "-",
            ".",
            ".5",
            "5.",
            "--1",
            "1-",
            "1.2.3",
            "1e3",
            "+1",
            "1.-2",
            "a",
            "1.a",
        ] {
            let any = parse_decimal(text, SCALE).and_then(Amount::checked);
            if let Some(short) = parse_short(text) {
                let any = any.unwrap();
                assert_eq!((short, short.scale()), (any.0, any.0.scale()), "{text:?}");
            }
            assert_eq!(
                text.parse::<Amount>(),
                parse_decimal(text, SCALE).and_then(Amount::checked),
                "{text:?}"
            );
        }
        assert!(parse_short("99999999.9999999999").is_some());
    }

    #[test]
    fn the_largest_amount_is_a_million_millions() {
        assert_eq!(Amount::MAX, amount("1000000000000"));
        assert_eq!(Amount::MAX.plus(amount("0.0000000001")), Err(Error::OutOfRange));
    }

    #[test]
    fn a_sum_is_exact_or_an_error() {
        let decimal = |text: &str| Decimal::from_str_exact(text).unwrap();
        let (large, small) = (decimal("9000000000000000000"), decimal("0.0000000001"));
        for (one, other, sum) in [
            ("0.10", "0.2", "0.3"),
            ("1.50", "-1.5", "0"),
            ("0", "0.00000000000000000001", "0.00000000000000000001"),
            ("7922816251426433758.5000000000", "0.4950000000", "7922816251426433758.995"),
            ("9000000000000000000.00", "0.5000000000", "9000000000000000000.5"),
            ("90000000000000000000000000", "10.0000000000", "90000000000000000000000010"),
        ] {
            assert_eq!(exact_sum(decimal(one), decimal(other)), Ok(decimal(sum)), "{one} + {other}");
            assert_eq!(exact_sum(decimal(other), decimal(one)), Ok(decimal(sum)), "{other} + {one}");
        }
        for (one, other) in [(large, small), (small, -large), (Decimal::MAX, Decimal::MAX)] {
            assert_eq!(exact_sum(one, other), Err(Error::OutOfRange), "{one} + {other}");
        }
    }

    #[test]
    fn a_sum_of_zero_has_no_sign() {
        let zero = Total::default();
        assert_eq!(zero.less(zero).unwrap().decimal().to_string(), "0");
        let one = zero.plus(amount("1.50")).unwrap();
        for sum in
            [one.less(one), zero.less(one).and_then(|debt| debt.and(one)), zero.less(one.less(one).unwrap())]
        {
            assert_eq!(format!("{:.10}", sum.unwrap().decimal()), "0.0000000000");
        }
    }

    #[test]
    fn a_total_that_would_be_rounded_is_an_error() {
        let large =
            (0..8).try_fold(Total(Decimal::from(1_000_000_000_000_000_000_u64)), |sum, _| sum.and(sum));
        let large = large.unwrap();
        assert_eq!(large.decimal().to_string(), "256000000000000000000");
        assert_eq!(large.plus(amount("1")).unwrap().less(large), Ok(Total(Decimal::ONE)));
        for last in ["0.0000000001", "-0.0000000001"] {
            assert_eq!(large.plus(amount(last)), Err(Error::OutOfRange), "{last}");
            assert_eq!(Total(amount(last).decimal()).and(large), Err(Error::OutOfRange), "{last}");
            assert_eq!(Total(amount(last).decimal()).less(large), Err(Error::OutOfRange), "{last}");
        }
    }

    #[test]
    fn halves_round_away_from_zero() {
        for (exact, rounded) in [
            ("0.00000000005", "0.0000000001"),
            ("-0.00000000005", "-0.0000000001"),
            ("0.00000000004999", "0.0000000000"),
        ] {
            let exact = Decimal::from_str_exact(exact).unwrap();
            assert_eq!(round_line(exact).unwrap().to_string(), rounded);
        }
    }
}
