//! The built-in `test` processor. It moves no money. Well-known test card numbers decide whether it accepts or declines, and
//! it records every charge in a table of its own, as a real processor would.

use chrono::{DateTime, Datelike as _, Utc};
use deadpool_postgres::Pool;
use farthing_core::command::Paid;
use farthing_core::event::{Card, DeclineReason};
use farthing_log::connect::redacted;

use super::processor::{CardInput, CardRefused, Charge, Processor, Response, StoredCard, Unavailable};

/// The first response stands; a repeated request gets it again.
const CHARGE: &str = "\
INSERT INTO test_processor.charge (payment_id, token, amount, declined) VALUES ($1, $2, $3::text::numeric, $4)
ON CONFLICT (payment_id) DO UPDATE SET asked = test_processor.charge.asked + 1
RETURNING reference, declined";

/// A payment that was never charged cannot be charged after this.
const VOID: &str = "\
INSERT INTO test_processor.charge (payment_id, token, amount, declined) VALUES ($1, $2, $3::text::numeric, 'voided')
ON CONFLICT (payment_id) DO UPDATE SET refund = CASE
    WHEN test_processor.charge.declined IS NULL
    THEN coalesce(test_processor.charge.refund, gen_random_uuid()::text) END
RETURNING refund";

/// Card numbers with their brand and the reason why a charge is declined; `None` accepts it.
const CARDS: [(&str, &str, Option<DeclineReason>); 9] = [
    ("4242424242424242", "visa", None),
    ("4000056655665556", "visa", None),
    ("5555555555554444", "mastercard", None),
    ("5105105105105100", "mastercard", None),
    ("378282246310005", "amex", None),
    ("4000000000000002", "visa", Some(DeclineReason::CardDeclined)),
    ("4000000000000341", "visa", Some(DeclineReason::CardDeclined)),
    ("4000000000009995", "visa", Some(DeclineReason::InsufficientFunds)),
    ("4000000000000069", "visa", Some(DeclineReason::ExpiredCard)),
];

/// The processor of an instance that takes no real money.
pub struct TestProcessor {
    pool: Pool,
}

impl TestProcessor {
    /// Its name.
    pub const NAME: &'static str = "test";

    /// A processor that records its charges in the database behind `pool`.
    pub fn new(pool: Pool) -> Self {
        Self { pool }
    }

    async fn record_charge(&self, charge: Charge<'_>) -> Result<Paid, Unavailable> {
        let declined = declined(charge.token);
        let unavailable = |error: &dyn std::fmt::Display| Unavailable(error.to_string());
        let connection = self.pool.get().await.map_err(|error| unavailable(&error))?;
        let row = connection
            .query_one(
                CHARGE,
                &[
                    &charge.payment_id.to_string(),
                    &charge.token,
                    &charge.amount.to_string(),
                    &declined.map(name),
                ],
            )
            .await
            .map_err(|error| unavailable(&redacted(&error)))?;
        let first: Option<&str> = row.try_get(1).map_err(|error| unavailable(&error))?;
        match first {
            None => Ok(Paid::Accepted(row.try_get(0).map_err(|error| unavailable(&error))?)),
            Some(reason) => Ok(Paid::Declined(read(reason))),
        }
    }

    async fn record_void(&self, charge: Charge<'_>) -> Result<Option<String>, Unavailable> {
        let unavailable = |error: &dyn std::fmt::Display| Unavailable(error.to_string());
        let connection = self.pool.get().await.map_err(|error| unavailable(&error))?;
        let row = connection
            .query_one(VOID, &[&charge.payment_id.to_string(), &charge.token, &charge.amount.to_string()])
            .await
            .map_err(|error| unavailable(&redacted(&error)))?;
        row.try_get(0).map_err(|error| unavailable(&error))
    }
}

/// The reason why a charge on this token is declined; the token holds it.
fn declined(token: &str) -> Option<DeclineReason> {
    match token.strip_prefix("test_") {
        Some("accepts") => None,
        Some(reason) => Some(read(reason)),
        None => Some(DeclineReason::CardDeclined),
    }
}

const fn name(reason: DeclineReason) -> &'static str {
    match reason {
        DeclineReason::CardDeclined => "card_declined",
        DeclineReason::InsufficientFunds => "insufficient_funds",
        DeclineReason::ExpiredCard => "expired_card",
        DeclineReason::MethodRemoved => "method_removed",
    }
}

fn read(reason: &str) -> DeclineReason {
    let all = [DeclineReason::InsufficientFunds, DeclineReason::ExpiredCard, DeclineReason::MethodRemoved];
    all.into_iter().find(|known| name(*known) == reason).unwrap_or(DeclineReason::CardDeclined)
}

/// Checks that the card is one of the test cards and has not expired.
fn read_card(input: &CardInput, now: DateTime<Utc>) -> Result<StoredCard, CardRefused> {
    let digits: String = input.number.chars().filter(|digit| !matches!(digit, ' ' | '-')).collect();
    let known = CARDS.iter().find(|(number, ..)| *number == digits).ok_or(CardRefused::Number)?;
    let (_, brand, declined) = *known;
    let expires = (i32::from(input.exp_year), u32::from(input.exp_month));
    if !(1..=12).contains(&input.exp_month) || expires < (now.year(), now.month()) || input.exp_year > 2099 {
        return Err(CardRefused::Expiry);
    }
    if !(3..=4).contains(&input.cvc.len()) || !input.cvc.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(CardRefused::Cvc);
    }
    let last4 = digits[digits.len() - 4..].to_owned();
    let (exp_month, exp_year) = (input.exp_month, input.exp_year);
    let token = format!("test_{}", declined.map_or("accepts", name));
    Ok(StoredCard { token, card: Card { brand: brand.to_owned(), last4, exp_month, exp_year } })
}

impl Processor for TestProcessor {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn store(&self, card: CardInput) -> Response<'_, Result<StoredCard, CardRefused>> {
        Box::pin(async move { Ok(read_card(&card, Utc::now())) })
    }

    fn charge<'a>(&'a self, charge: Charge<'a>) -> Response<'a, Paid> {
        Box::pin(self.record_charge(charge))
    }

    fn void<'a>(&'a self, charge: Charge<'a>) -> Response<'a, Option<String>> {
        Box::pin(self.record_void(charge))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(number: &str, exp_month: u8, exp_year: u16, cvc: &str) -> CardInput {
        CardInput { number: number.into(), exp_month, exp_year, cvc: cvc.into() }
    }

    fn now() -> DateTime<Utc> {
        "2026-11-21T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn spaces_and_hyphens_in_a_card_number_are_ignored() {
        let stored = read_card(&card("4242 4242-4242 4242", 11, 2026, "123"), now()).unwrap();
        assert_eq!(stored.token, "test_accepts");
        assert_eq!((stored.card.brand.as_str(), stored.card.last4.as_str()), ("visa", "4242"));
        assert_eq!(declined(&stored.token), None);
        let amex = read_card(&card("378282246310005", 1, 2030, "1234"), now()).unwrap();
        assert_eq!((amex.card.brand.as_str(), amex.card.last4.as_str()), ("amex", "0005"));
    }

    #[test]
    fn each_declining_card_has_its_own_reason() {
        for (number, reason) in [
            ("4000000000000002", DeclineReason::CardDeclined),
            ("4000000000009995", DeclineReason::InsufficientFunds),
            ("4000000000000069", DeclineReason::ExpiredCard),
        ] {
            let stored = read_card(&card(number, 12, 2030, "123"), now()).unwrap();
            assert_eq!(declined(&stored.token), Some(reason));
        }
        assert_eq!(declined("tok_of_another"), Some(DeclineReason::CardDeclined));
    }

    #[test]
    fn an_invalid_card_is_refused_with_the_part_that_is_wrong() {
        for (input, refused) in [
            (card("4242424242424241", 12, 2030, "123"), CardRefused::Number),
            (card("", 12, 2030, "123"), CardRefused::Number),
            (card("４２４２４２４２４２４２４２４２", 12, 2030, "123"), CardRefused::Number),
            (card("4242424242424242", 10, 2026, "123"), CardRefused::Expiry),
            (card("4242424242424242", 13, 2030, "123"), CardRefused::Expiry),
            (card("4242424242424242", 0, 2030, "123"), CardRefused::Expiry),
            (card("4242424242424242", 12, 2030, "12"), CardRefused::Cvc),
            (card("4242424242424242", 12, 2030, "12a"), CardRefused::Cvc),
        ] {
            assert_eq!(read_card(&input, now()), Err(refused));
        }
    }
}
