//! The table `focus`: a row for each metered call, with the columns of FOCUS 1.2, the FinOps Open Cost and Usage
//! Specification (<https://focus.finops.org/focus-specification/v1-2/>).
//!
//! Invariant: the four costs of a row are the call's total.

use chrono::{DateTime, Datelike as _, DurationRound as _, Months, NaiveDate, NaiveTime, TimeDelta, Utc};
use farthing_core::event::{Fact, RequestMetered};
use farthing_core::meter::TierType;
use farthing_core::usage::Usage;
use rust_decimal::Decimal;

use super::super::partition_reader::Line;
use super::requests::Opening;
use super::table::{Column, Kind, Value};

/// The version of the specification.
pub const VERSION: &str = "1.2";

/// The columns: those of the specification in the order of their names, then those of Farthing.
pub(super) const COLUMNS: &[Column] = &[
    Column::required("BilledCost", Kind::Amount),
    Column::required("BillingAccountId", Kind::Name),
    Column::optional("BillingAccountName", Kind::Text),
    Column::required("BillingAccountType", Kind::Name),
    Column::required("BillingCurrency", Kind::Name),
    Column::required("BillingPeriodEnd", Kind::Second),
    Column::required("BillingPeriodStart", Kind::Second),
    Column::required("ChargeCategory", Kind::Name),
    Column::optional("ChargeClass", Kind::Name),
    Column::required("ChargeDescription", Kind::Text),
    Column::required("ChargeFrequency", Kind::Name),
    Column::required("ChargePeriodEnd", Kind::Second),
    Column::required("ChargePeriodStart", Kind::Second),
    Column::required("ConsumedQuantity", Kind::Quantity),
    Column::required("ConsumedUnit", Kind::Name),
    Column::required("ContractedCost", Kind::Amount),
    Column::required("EffectiveCost", Kind::Amount),
    Column::required("InvoiceIssuerName", Kind::Text),
    Column::required("ListCost", Kind::Amount),
    Column::required("PricingCategory", Kind::Name),
    Column::required("PricingQuantity", Kind::Quantity),
    Column::required("PricingUnit", Kind::Name),
    Column::required("ProviderName", Kind::Text),
    Column::required("PublisherName", Kind::Text),
    Column::optional("ResourceId", Kind::Name),
    Column::optional("ResourceType", Kind::Name),
    Column::required("ServiceCategory", Kind::Name),
    Column::required("ServiceName", Kind::Text),
    Column::required("ServiceSubcategory", Kind::Name),
    Column::required("SkuId", Kind::Text),
    Column::required("SkuMeter", Kind::Name),
    Column::optional("SubAccountId", Kind::Name),
    Column::optional("SubAccountType", Kind::Name),
    Column::required("Tags", Kind::Json),
    Column::required("x_EndedAt", Kind::Second),
    Column::required("x_Fee", Kind::Amount),
    Column::required("x_InputTokens", Kind::Integer),
    Column::required("x_MerchantCost", Kind::Amount),
    Column::optional("x_MeterId", Kind::Name),
    Column::required("x_ModelCost", Kind::Amount),
    Column::required("x_OutputTokens", Kind::Integer),
    Column::required("x_Overrun", Kind::Amount),
    Column::required("x_Partition", Kind::Integer),
    Column::required("x_Position", Kind::Integer),
    Column::required("x_ProviderKeyType", Kind::Name),
    Column::required("x_RequestId", Kind::Name),
    Column::required("x_ServiceCharge", Kind::Amount),
    Column::required("x_WalletCost", Kind::Amount),
];

/// Who sells the calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seller<'a> {
    /// The name of the instance's operator.
    pub(super) issuer: &'a str,
    /// The name of the merchant, if it has one.
    pub(super) merchant: Option<&'a str>,
}

/// The row of a metered call.
pub(super) fn row(
    line: &Line<'_>,
    fact: &Fact,
    opening: &Opening,
    metered: &RequestMetered,
    seller: Seller<'_>,
) -> Vec<Value> {
    let opened = &opening.event;
    let cost = Value::Amount(metered.total_request_cost);
    let hour = hour(fact.occurred_at);
    let (month, next_month) = month(fact.occurred_at);
    let (consumed, consumed_unit) = consumed(&metered.usage);
    let (priced, priced_unit) = match &opened.terms {
        Some(terms) => (metered.units, unit(terms.price.tier_type)),
        None => (consumed, consumed_unit),
    };
    let (provider, model) = (&opened.provider, metered.model.as_deref().or(opened.model.as_deref()));
    let sku = model.map_or_else(|| provider.clone(), |model| format!("{provider}/{model}"));
    let customer_id = opened.parties.customer_id;
    let spend_key_id = opened.spend_key.map(|used| used.spend_key_id);
    vec![
        cost.clone(),
        Value::name(fact.merchant_id),
        Value::text_or_null(seller.merchant),
        Value::name("Merchant"),
        Value::name("USD"),
        Value::Time(next_month),
        Value::Time(month),
        Value::name("Usage"),
        Value::Null,
        Value::Text(format!("Call of {sku}: {} {consumed_unit}", consumed.normalize())),
        Value::name("Usage-Based"),
        Value::Time(hour + TimeDelta::hours(1)),
        Value::Time(hour),
        Value::Quantity(consumed),
        Value::name(consumed_unit),
        cost.clone(),
        cost.clone(),
        Value::name(seller.issuer),
        cost,
        Value::name("Standard"),
        Value::Quantity(priced),
        Value::name(priced_unit),
        Value::name(seller.issuer),
        Value::name(provider),
        Value::name_or_null(spend_key_id),
        Value::name_or_null(spend_key_id.map(|_| "Spend Key")),
        Value::name("AI and Machine Learning"),
        Value::name(provider),
        Value::name("Generative AI"),
        Value::Text(sku),
        Value::name(consumed_unit),
        Value::name_or_null(customer_id),
        Value::name_or_null(customer_id.map(|_| "Customer")),
        Value::json(&opened.metadata),
        Value::Time(fact.occurred_at),
        Value::Amount(metered.fee.amount),
        Value::count(metered.usage.tokens.input),
        Value::Amount(metered.total_merchant_cost),
        Value::name_or_null(metered.meter_id),
        Value::Amount(metered.model_cost.total),
        Value::count(metered.usage.tokens.output),
        Value::Amount(metered.overrun),
        Value::Integer(line.place.partition.number().into()),
        Value::Integer(line.place.position),
        Value::variant(&opened.provider_key_type),
        Value::name(opened.request_id),
        Value::Amount(metered.service_charge.amount),
        Value::Amount(metered.total_wallet_cost),
    ]
}

/// The unit of a meter, by the names of the specification.
const fn unit(tier_type: TierType) -> &'static str {
    match tier_type {
        TierType::Tokens1m => "Tokens",
        TierType::Characters1m => "Characters",
        TierType::Minutes => "Seconds",
        TierType::Requests => "Requests",
    }
}

/// The usage in the unit that was reported: tokens, characters or seconds of both directions; one request if none was.
fn consumed(usage: &Usage) -> (Decimal, &'static str) {
    let reported = [
        (Decimal::from(usage.tokens.input) + Decimal::from(usage.tokens.output), "Tokens"),
        (Decimal::from(usage.characters.input) + Decimal::from(usage.characters.output), "Characters"),
        (usage.seconds.input + usage.seconds.output, "Seconds"),
    ];
    reported.into_iter().find(|(count, _)| !count.is_zero()).unwrap_or((Decimal::ONE, "Requests"))
}

/// The beginning of the hour.
fn hour(at: DateTime<Utc>) -> DateTime<Utc> {
    at.duration_trunc(TimeDelta::hours(1)).unwrap_or(at)
}

/// The beginnings of the calendar month and of the next one, in UTC.
fn month(at: DateTime<Utc>) -> (DateTime<Utc>, DateTime<Utc>) {
    let first = NaiveDate::from_ymd_opt(at.year(), at.month(), 1).unwrap_or_default();
    let next = first.checked_add_months(Months::new(1)).unwrap_or(first);
    (first.and_time(NaiveTime::MIN).and_utc(), next.and_time(NaiveTime::MIN).and_utc())
}

#[cfg(test)]
mod tests {
    use farthing_core::usage::Split;

    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn a_call_is_charged_in_the_hour_and_the_month_of_its_end() {
        let end = at("2026-12-31T23:59:59.999Z");
        assert_eq!(hour(end), at("2026-12-31T23:00:00Z"));
        assert_eq!(month(end), (at("2026-12-01T00:00:00Z"), at("2027-01-01T00:00:00Z")));
        assert_eq!(month(at("2027-01-01T00:00:00Z")).0, at("2027-01-01T00:00:00Z"));
    }

    #[test]
    fn a_call_without_usage_consumes_one_request() {
        assert_eq!(consumed(&Usage::default()), (Decimal::ONE, "Requests"));
        let seconds = Usage {
            seconds: Split { input: "1.5".parse().unwrap(), output: Decimal::ZERO },
            ..Usage::default()
        };
        assert_eq!(consumed(&seconds), ("1.5".parse().unwrap(), "Seconds"));
        let tokens = Usage { tokens: Split { input: 3, output: 4 }, ..seconds };
        assert_eq!(consumed(&tokens), (Decimal::from(7), "Tokens"));
    }
}
