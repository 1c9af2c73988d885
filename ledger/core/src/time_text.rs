//! Writes instants as text without the machinery of formats: an event of a call has several. The text is the one that
//! [`DateTime`] itself writes: RFC 3339 with `Z` and with no, three, six or nine fractional digits.

use chrono::{DateTime, Datelike, Timelike, Utc};
use serde::{Serialize, Serializer};

/// The longest text, from the year 0 to the year 9999.
const LONGEST: &[u8; 30] = b"0000-00-00T00:00:00.000000000Z";

/// Where the fractional digits begin, after their point.
const FRACTION: usize = 20;

const NANOSECONDS: u32 = 1_000_000_000;

/// Serializes an instant.
pub(crate) fn serialize<S: Serializer>(time: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut buffer = *LONGEST;
    match text_of(time, &mut buffer) {
        Some(text) => serializer.serialize_str(text),
        None => Serialize::serialize(time, serializer),
    }
}

/// Serializes an instant, or its absence.
#[allow(clippy::ref_option, reason = "serde passes a field by reference")]
pub(crate) fn serialize_option<S: Serializer>(
    time: &Option<DateTime<Utc>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    struct Text<'a>(&'a DateTime<Utc>);

    impl Serialize for Text<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serialize(self.0, serializer)
        }
    }

    match time {
        Some(time) => serializer.serialize_some(&Text(time)),
        None => serializer.serialize_none(),
    }
}

/// Writes `time` over the zeros of `buffer`; `None` for a leap second, or if the year has a sign.
fn text_of<'a>(time: &DateTime<Utc>, buffer: &'a mut [u8; LONGEST.len()]) -> Option<&'a str> {
    let time = time.naive_utc();
    let year = u32::try_from(time.year()).ok().filter(|year| *year <= 9999)?;
    let nanosecond = time.nanosecond();
    if nanosecond >= NANOSECONDS {
        return None;
    }
    let pairs = [
        (0, year / 100),
        (2, year % 100),
        (5, time.month()),
        (8, time.day()),
        (11, time.hour()),
        (14, time.minute()),
        (17, time.second()),
    ];
    for (at, number) in pairs {
        buffer[at] = digit(number / 10);
        buffer[at + 1] = digit(number);
    }
    let shown = match nanosecond {
        0 => 0,
        _ if nanosecond.is_multiple_of(1_000_000) => 3,
        _ if nanosecond.is_multiple_of(1_000) => 6,
        _ => 9,
    };
    let mut unit = NANOSECONDS;
    for byte in &mut buffer[FRACTION..FRACTION + shown] {
        unit /= 10;
        *byte = digit(nanosecond / unit);
    }
    // Without digits there is no point.
    let end = if shown == 0 { FRACTION - 1 } else { FRACTION + shown };
    buffer[end] = b'Z';
    Some(std::str::from_utf8(&buffer[..=end]).expect("digits are ASCII"))
}

/// The last digit of `number`.
fn digit(number: u32) -> u8 {
    b'0' + u8::try_from(number % 10).expect("a digit")
}

#[cfg(test)]
mod tests {
    use chrono::{NaiveDate, NaiveTime};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Serialize)]
    struct Ours {
        #[serde(serialize_with = "serialize")]
        time: DateTime<Utc>,
        #[serde(serialize_with = "serialize_option")]
        option: Option<DateTime<Utc>>,
    }

    #[derive(Serialize)]
    struct Chronos {
        time: DateTime<Utc>,
        option: Option<DateTime<Utc>>,
    }

    /// Returns whether the text was written without chrono.
    fn check(time: DateTime<Utc>) -> bool {
        for option in [Some(time), None] {
            let (ours, chronos) = (Ours { time, option }, Chronos { time, option });
            assert_eq!(serde_json::to_string(&ours).unwrap(), serde_json::to_string(&chronos).unwrap());
            assert_eq!(serde_json::to_value(&ours).unwrap(), serde_json::to_value(&chronos).unwrap());
        }
        let mut buffer = *LONGEST;
        let text = text_of(&time, &mut buffer);
        if let Some(text) = text {
            assert_eq!(Value::from(text), json!(time));
            assert_eq!(text.parse::<DateTime<Utc>>(), Ok(time));
        }
        text.is_some()
    }

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn instants_are_written_as_chrono_writes_them() {
        for text in [
            "1970-01-01T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "9999-12-31T23:59:59.999999999Z",
            "2024-02-29T23:59:59.001Z",
            "2026-10-31T10:00:00.123Z",
            "2026-10-31T10:00:00.120Z",
            "2026-10-31T10:00:00.000001Z",
            "2026-10-31T10:00:00.123450Z",
            "2026-10-31T10:00:00.000000001Z",
            "2026-10-31T10:00:00.100000001Z",
        ] {
            assert!(check(at(text)), "{text}");
            let mut buffer = *LONGEST;
            assert_eq!(text_of(&at(text), &mut buffer), Some(text));
        }
    }

    #[test]
    fn chrono_itself_writes_leap_seconds_and_years_with_a_sign() {
        for text in [
            "2016-12-31T23:59:60Z",
            "2016-12-31T23:59:60.5Z",
            "-0001-12-31T23:59:59Z",
            "+10000-01-01T00:00:00Z",
            "+262142-12-31T23:59:59Z",
        ] {
            assert!(!check(at(text)), "{text}");
        }
        assert!(!check(DateTime::<Utc>::MIN_UTC));
        assert!(!check(DateTime::<Utc>::MAX_UTC));
    }

    /// Any instant that chrono knows, also a leap second; most are in years without a sign.
    fn any_instant() -> impl Strategy<Value = DateTime<Utc>> {
        let year = prop_oneof![4 => 0_i32..=9999, 1 => -200_000_i32..200_000];
        let nanosecond = prop_oneof![
            Just(0_u32),
            (0_u32..1_000).prop_map(|ms| ms * 1_000_000),
            (0_u32..1_000_000).prop_map(|us| us * 1_000),
            0_u32..2 * NANOSECONDS,
        ];
        (year, 1_u32..=366, 0_u32..86_400, nanosecond).prop_map(|(year, day, second, nanosecond)| {
            let date = NaiveDate::from_yo_opt(year, day).or_else(|| NaiveDate::from_yo_opt(year, 1));
            let second = if nanosecond < NANOSECONDS { second } else { second / 60 * 60 + 59 };
            let time = NaiveTime::from_num_seconds_from_midnight_opt(second, nanosecond).unwrap();
            date.unwrap().and_time(time).and_utc()
        })
    }

    proptest! {
        #[test]
        fn any_instant_is_written_as_chrono_writes_it(time in any_instant()) {
            let is_plain = (0..=9999).contains(&time.year()) && time.nanosecond() < NANOSECONDS;
            prop_assert_eq!(check(time), is_plain);
        }
    }
}
