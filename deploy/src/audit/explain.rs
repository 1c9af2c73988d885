//! `farthing audit explain`: a request from its credential to the last digit. Broken if the log has errors, or the bill
//! computed again is not the recorded one.

use std::fmt::Display;

use anyhow::{Context as _, Result};
use farthing_core::command::{ChargedParts, service_charge_payer};
use farthing_core::event::{Charge, ProviderKeyType, RequestMetered, RequestOpened, Source};
use farthing_core::ids::RequestId;
use farthing_core::meter::{Terms, Tier};
use farthing_core::model_price::{ModelPrice, TokenRates};
use farthing_core::money::Amount;
use farthing_core::usage::Usage;
use farthing_log::audit::explain::{self, Debit, Explanation};
use serde::Serialize;
use serde_json::Value;

use crate::database::Database;
use crate::exit_code::Soundness;
use crate::output::{OutputFormat, Shown, print_line, timestamp};
use crate::price_files;

/// Flags of `audit explain`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// The request.
    request: RequestId,
    #[command(flatten)]
    format: OutputFormat,
}

/// Runs the command.
pub(super) async fn run(args: &Args) -> Result<Soundness> {
    let explanation = explain::explain(&args.database.reachable_url().await?, args.request).await;
    let explanation = explanation.context("cannot explain the request")?;
    if args.format.is_json() {
        args.format.print(&explanation)?;
    } else {
        print_text(&explanation)?;
    }
    Ok(Soundness::of(&explanation.findings))
}

fn print_text(explanation: &Explanation) -> Result<()> {
    show("request", explanation.request_id)?;
    show_some("merchant", explanation.merchant_id)?;
    if let Some(opened) = &explanation.opened {
        print_opened(opened)?;
    }
    match (&explanation.metered, &explanation.failed) {
        (Some(metered), _) => print_bill(explanation, metered)?,
        (None, Some(failed)) => {
            let status = failed.http_status.map(|status| format!(", status {status}")).unwrap_or_default();
            show("not charged", format!("{}{status}", name(&failed.reason)))?;
        }
        (None, None) => show("state", "open: it has not ended")?,
    }
    for Debit { debited, balance_before } in &explanation.debits {
        let sources = debited.sources.iter().map(|part| {
            let source = match part.source {
                Source::Balance => "balance".to_owned(),
                Source::PlanCredit(id) => format!("plan credit of {id}"),
                Source::BundleCredit(id) => format!("bundle credit of {id}"),
            };
            format!("{} of {source}", part.amount)
        });
        let sources = sources.collect::<Vec<_>>().join(", ");
        let (wallet, amount, after) = (debited.wallet_id, debited.amount, debited.balance_after);
        show("debit", format!("{wallet}: {amount} ({sources}); balance {balance_before}, then {after}"))?;
    }
    for posting in &explanation.postings {
        show("posting", format!("{} {}", posting.account.name(), posting.amount))?;
    }
    for event in &explanation.events {
        let at = timestamp(event.occurred_at);
        show("event", format!("{at}  {}  {}  {}", event.kind, event.place, event.hash))?;
    }
    if let Some(head) = &explanation.head {
        let read = format!("partition {} to position {}", head.partition, head.position);
        match explanation.findings.warning() {
            None => show("verified", read)?,
            Some(warning) => show("NOT VERIFIED", format!("{read}: {warning}"))?,
        }
    }
    Ok(())
}

/// What the admission froze.
fn print_opened(opened: &RequestOpened) -> Result<()> {
    show("credential", credential(opened))?;
    show_some("spend key", opened.spend_key.map(|used| used.spend_key_id))?;
    show_some("customer", opened.parties.customer_id)?;
    show("call", &opened.endpoint)?;
    show("provider", format!("{}, {} key", opened.provider, name(&opened.provider_key_type)))?;
    show_some("model", opened.model.as_deref())?;
    show_some("reported as", opened.reported_id.as_deref())?;
    match &opened.model_price {
        Some(price) => {
            show("list price", price_text(price))?;
            show_some("price file", price.file.as_ref().map(price_files::name))?;
        }
        None => show("list price", "none")?,
    }
    if let Some(terms) = &opened.terms {
        let price = &terms.price;
        show("meter", format!("{}: {} {}", terms.meter_id, name(&price.rate_type), name(&price.tier_type)))?;
        for Tier { start, rate, .. } in price.tiers.as_slice() {
            show("tier", format!("from {start}: {rate}"))?;
        }
        show_some("base cost", base_cost(opened, terms))?;
        show_some("service charge", service_charge(opened, terms))?;
        show_some("largest fee", price.max_fee)?;
    }
    show_some("usage period", opened.period_start.map(timestamp))?;
    show("hold", format!("wallet {}, merchant {}", opened.hold.wallet, opened.hold.merchant))
}

/// The form of the credential, and who pays for the call.
fn credential(opened: &RequestOpened) -> String {
    let is_managed = opened.provider_key_type == ProviderKeyType::Managed;
    let has_meter = opened.terms.is_some();
    let (form, pays) = match opened.charge {
        Charge::Merchant => ("a secret key", is_managed.then_some("the merchant pays")),
        Charge::MeterOnly if is_managed => (
            "a secret key and a meter",
            Some("the merchant pays the provider's cost, the fee is only counted"),
        ),
        Charge::MeterOnly => ("a secret key and a meter", Some("the fee is only counted")),
        Charge::Customer => ("a secret key and a customer", is_managed.then_some("the customer pays")),
        Charge::CustomerBilling => {
            ("a secret key, a customer and a meter", Some("the customer pays the fee"))
        }
        Charge::Recorded if has_meter => {
            ("a secret key, a customer and a meter, billing disabled", Some("the merchant pays"))
        }
        Charge::Recorded => {
            ("a secret key and a customer, billing disabled", is_managed.then_some("the merchant pays"))
        }
        Charge::MeteringOnly => return "a provider key alone: metered, nobody pays".to_owned(),
        Charge::SpendKey => ("a spend key", is_managed.then_some("its wallet pays the provider's cost")),
    };
    let pays = pays.map(|pays| format!(": {pays}")).unwrap_or_default();
    let own_key = if is_managed {
        ""
    } else {
        "; on the caller's own provider key, so nobody is charged the provider's cost"
    };
    format!("{form}{pays}{own_key}")
}

/// Who pays the provider's cost by the meter: its payer counts only if a customer is billed, on a managed key.
fn base_cost(opened: &RequestOpened, terms: &Terms) -> Option<String> {
    let is_by_meter = opened.charge == Charge::CustomerBilling && ChargedParts::of(opened).model_cost;
    is_by_meter.then(|| format!("paid by the {}", name(&terms.price.base_cost_payer)))
}

/// The service charge, if there is one: without a charged fee there is none.
fn service_charge(opened: &RequestOpened, terms: &Terms) -> Option<String> {
    let percent = (terms.service_charge_rate * rust_decimal::Decimal::ONE_HUNDRED).normalize();
    let payer = service_charge_payer(opened.charge, Some(terms));
    let is_charged = ChargedParts::of(opened).service_charge;
    is_charged.then(|| format!("{percent} % of the fee, paid by the {}", name(&payer)))
}

/// The bill as recorded, and whether it is the same when it is computed again.
fn print_bill(explanation: &Explanation, metered: &RequestMetered) -> Result<()> {
    show("usage", usage_text(&metered.usage))?;
    let counted = metered.counted;
    show_some(
        "counted",
        counted.map(|counted| match counted.characters {
            0 => format!("at most {} tokens of input and {} of output", counted.input, counted.output),
            characters => format!("{characters} characters of input"),
        }),
    )?;
    let cost = metered.model_cost;
    show("provider cost", format!("{} = input {} + output {}", cost.total, cost.input, cost.output))?;
    if metered.meter_id.is_some() {
        show(
            "tier usage",
            format!("{} before the call; the call adds {}", metered.tier_position, metered.units),
        )?;
    }
    for line in &metered.fee.breakdown {
        let (start, rate) = (line.tier.start, line.tier.rate);
        show("fee line", format!("{} = {} in the tier from {start} at {rate}", line.cost, line.units))?;
    }
    show("fee", metered.fee.amount)?;
    show("service charge", metered.service_charge.amount)?;
    let [total, wallet, merchant] =
        [metered.total_request_cost, metered.total_wallet_cost, metered.total_merchant_cost];
    show("total", format!("{total} = wallet {wallet} + merchant {merchant}"))?;
    if metered.overrun != Amount::ZERO {
        show("overrun", format!("{} of it, which the wallet did not cover", metered.overrun))?;
    }
    for mark in &metered.marks {
        show("remark", name(mark))?;
    }
    if explanation.recomputed.is_some() {
        let verdict = if explanation.ok { "the same" } else { "see the findings" };
        show("computed again", verdict)?;
    }
    Ok(())
}

fn price_text(price: &ModelPrice) -> String {
    let mut parts = rates_text(&price.rates);
    for (what, rate) in
        [("a call", price.per_request), ("a character", price.per_character), ("a second", price.per_second)]
    {
        parts.extend(rate.map(|rate| format!("{rate} {what}")));
    }
    for above in &price.above {
        let rates = rates_text(&above.rates).join(", ");
        parts.push(format!("above {} input tokens: {rates}", above.input_tokens));
    }
    if parts.is_empty() { "free".to_owned() } else { parts.join(", ") }
}

fn rates_text(rates: &TokenRates) -> Vec<String> {
    let named = [
        ("input", rates.input_per_1m),
        ("output", rates.output_per_1m),
        ("cache read", rates.cache_read_per_1m),
        ("cache write", rates.cache_write_per_1m),
    ];
    let listed = named.into_iter().filter_map(|(what, rate)| Some((what, rate?)));
    listed.map(|(what, rate)| format!("{what} {rate} a million tokens")).collect()
}

fn usage_text(usage: &Usage) -> String {
    let counts: [(&str, &dyn Display, bool); 9] = [
        ("input tokens", &usage.tokens.input, usage.tokens.input != 0),
        ("output tokens", &usage.tokens.output, usage.tokens.output != 0),
        ("of the input read from the cache", &usage.cached.read, usage.cached.read != 0),
        ("of the input written to the cache", &usage.cached.write, usage.cached.write != 0),
        ("of the output for reasoning", &usage.reasoning_tokens, usage.reasoning_tokens != 0),
        ("input characters", &usage.characters.input, usage.characters.input != 0),
        ("output characters", &usage.characters.output, usage.characters.output != 0),
        ("input seconds", &usage.seconds.input, !usage.seconds.input.is_zero()),
        ("output seconds", &usage.seconds.output, !usage.seconds.output.is_zero()),
    ];
    let shown = counts.into_iter().filter(|(.., is_some)| *is_some);
    let shown: Vec<_> = shown.map(|(what, count, _)| format!("{count} {what}")).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

/// The name of a value of an enum, as the log has it.
fn name(value: &impl Serialize) -> String {
    serde_json::to_value(value).as_ref().ok().and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn show(label: &str, value: impl Display) -> Result<()> {
    print_line(format!("{label:<15} {}", Shown(value.to_string())))
}

fn show_some(label: &str, value: Option<impl Display>) -> Result<()> {
    value.map_or(Ok(()), |value| show(label, value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An admitted call. The payers of its meter are the wallet.
    fn opened(charge: &str, key: &str, has_meter: bool) -> RequestOpened {
        let terms = json!({
            "meter_id": "prd_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "price": {
                "rate_type": "fixed", "tier_type": "requests", "tiers": [{"start": "0", "rate": "1.0000000000"}],
                "token_basis": "input+output", "base_cost_payer": "wallet", "service_charge_payer": "wallet",
            },
            "service_charge_rate": "0.019",
        });
        let opened = json!({
            "request_id": "req_01ARZ3NDEKTSV4RRFFQ69G5FAV", "gateway_id": "gw_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "charge": charge,
            "parties": {
                "customer_id": null, "wallet_id": null, "merchant_wallet_id": "wal_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            },
            "provider": "openai", "provider_key_type": key, "endpoint": "POST https://a/", "model": null,
            "metadata": {}, "terms": has_meter.then_some(terms), "period_start": null,
            "hold": {"wallet": "0.0000000000", "merchant": "0.0000000000"},
        });
        serde_json::from_str(&opened.to_string()).unwrap()
    }

    #[test]
    fn the_payers_are_those_of_the_bill() {
        let own = "; on the caller's own provider key, so nobody is charged the provider's cost";
        let (wallet, merchant) =
            ("1.9 % of the fee, paid by the wallet", "1.9 % of the fee, paid by the merchant");
        let metered = "a secret key, a customer and a meter";
        for (charge, has_meter, on_managed, on_own, base, service) in [
            ("merchant", false, "a secret key: the merchant pays", format!("a secret key{own}"), None, None),
            (
                "meter_only",
                true,
                "a secret key and a meter: the merchant pays the provider's cost, the fee is only counted",
                format!("a secret key and a meter: the fee is only counted{own}"),
                None,
                None,
            ),
            (
                "customer",
                false,
                "a secret key and a customer: the customer pays",
                format!("a secret key and a customer{own}"),
                None,
                None,
            ),
            (
                "customer_billing",
                true,
                "a secret key, a customer and a meter: the customer pays the fee",
                format!("{metered}: the customer pays the fee{own}"),
                Some("paid by the wallet"),
                Some(wallet),
            ),
            (
                "recorded",
                true,
                "a secret key, a customer and a meter, billing disabled: the merchant pays",
                format!("{metered}, billing disabled: the merchant pays{own}"),
                None,
                Some(merchant),
            ),
            (
                "recorded",
                false,
                "a secret key and a customer, billing disabled: the merchant pays",
                format!("a secret key and a customer, billing disabled{own}"),
                None,
                None,
            ),
            (
                "metering_only",
                false,
                "a provider key alone: metered, nobody pays",
                "a provider key alone: metered, nobody pays".to_owned(),
                None,
                None,
            ),
            (
                "spend_key",
                false,
                "a spend key: its wallet pays the provider's cost",
                format!("a spend key{own}"),
                None,
                None,
            ),
        ] {
            let [managed, unmanaged] = ["managed", "unmanaged"].map(|key| opened(charge, key, has_meter));
            assert_eq!((credential(&managed).as_str(), credential(&unmanaged)), (on_managed, on_own));
            let lines = |opened: &RequestOpened| {
                let terms = opened.terms.as_ref();
                let base = terms.and_then(|terms| base_cost(opened, terms));
                (base, terms.and_then(|terms| service_charge(opened, terms)))
            };
            let service = service.map(ToOwned::to_owned);
            assert_eq!(lines(&managed), (base.map(ToOwned::to_owned), service.clone()), "{charge}");
            assert_eq!(lines(&unmanaged), (None, service), "{charge}");
        }
    }
}
