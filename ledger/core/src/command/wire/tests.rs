//! Every command, outcome and refusal reads back as it was written, and nothing else is read.

use std::collections::BTreeSet;

use super::sample_values::{
    MERCHANT, SPEND_KEY, create_customer, issue_secret_key, key_hash, open_request, refusals, spend_key,
};
use super::samples::exchanges;
use super::*;
use crate::command::Caller;
use crate::event::{SpendKeySettings, SpendKeyStatus};

/// The text of `command` with another `value` in its field `name`.
fn with_field(command: &AnyCommand, name: &str, value: serde_json::Value) -> String {
    let mut json = serde_json::to_value(command).unwrap();
    json[command.name()][name] = value;
    json.to_string()
}

#[test]
fn every_command_and_outcome_reads_back_as_it_was_written() {
    let seen: BTreeSet<_> = exchanges().commands.iter().map(AnyCommand::name).collect();
    assert_eq!(seen, NAMES.iter().copied().collect());
}

#[test]
fn a_command_names_its_merchant_unless_it_is_listed() {
    let commands = exchanges().commands;
    let (timed, plain): (Vec<_>, Vec<_>) =
        commands.into_iter().partition(|command| matches!(command, AnyCommand::Timed(_)));
    assert!(timed.iter().all(|command| command.merchant_id() == Some(MERCHANT)));
    let (named, unnamed): (Vec<_>, Vec<_>) =
        plain.into_iter().partition(|command| command.merchant_id().is_some());
    assert!(named.iter().all(|command| command.merchant_id() == Some(MERCHANT)));
    let [named, unnamed] =
        [named, unnamed].map(|commands| commands.iter().map(AnyCommand::name).collect::<BTreeSet<_>>());
    let expected = [
        "advance_subscription",
        "already_applied",
        "auto_recharge",
        "complete_payment",
        "credit_wallet",
        "revoke_secret_key",
        "settle_request",
    ];
    assert_eq!(unnamed, BTreeSet::from(expected));
    let sometimes: Vec<_> = named.intersection(&unnamed).copied().collect();
    assert_eq!(sometimes, ["credit_wallet", "revoke_secret_key"]);
}

#[test]
fn every_refusal_reads_back_as_it_was_written() {
    for refusal in refusals() {
        let written = encode_answer(&Err(refusal.clone()));
        assert_eq!(decode_answer::<OpenRequest>(&written).unwrap(), Err(refusal.clone()), "{written}");
        assert_eq!(decode_answer::<Timed<AlreadyApplied>>(&written).unwrap(), Err(refusal), "{written}");
    }
}

/// A command that is not in the table is no [`WireCommand`] and does not compile where one is required. This test finds
/// a command that is not sent at all.
#[test]
fn every_command_of_the_crate_is_in_the_table_under_a_name_of_its_own() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/command");
    let mut commands = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        if file.is_dir() {
            continue;
        }
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let Some((_, command)) = line.split_once("Command for ") else { continue };
            commands.insert(command.trim_end_matches([' ', '{']).to_owned());
        }
    }
    // The row `Timed` is part of the table's enum.
    assert!(commands.remove("Timed<C>"));
    // A shared command travels as the command itself.
    assert!(commands.remove("Arc<C>"));
    // It travels as the opening that may have been decided before.
    assert!(commands.remove("OpenAgain"));
    // The leader decides it when such an opening finds the call in flight.
    assert!(commands.remove("FindOpen"));
    let snake_case = |name: &String| {
        let words = name.char_indices().map(|(at, letter)| {
            let separator = if at > 0 && letter.is_uppercase() { "_" } else { "" };
            format!("{separator}{}", letter.to_lowercase())
        });
        words.collect::<String>()
    };
    let expected: BTreeSet<_> = commands.iter().map(snake_case).collect();
    assert_eq!(NAMES.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(), expected);
    assert_eq!(NAMES.len(), expected.len(), "each name once");
    assert!(!NAMES.contains(&TIMED));
}

#[test]
fn an_unknown_command_is_an_error_with_its_name() {
    let timed =
        format!(r#"{{"timed":{{"command":{{"drop_log":{{}}}},"merchant_id":"{MERCHANT}","now":1}}}}"#);
    for text in [r#"{"drop_log":{"all":true}}"#, timed.as_str()] {
        let Err(Error::UnknownCommand(name)) = AnyCommand::decode(text) else { panic!("{text}") };
        assert_eq!(name, "drop_log");
    }
}

#[test]
fn a_text_that_is_not_a_command_is_an_error() {
    let deep = format!("{}{}", r#"{"timed":{"command":"#.repeat(100_000), "}}".repeat(100_000));
    for text in ["", "null", "[]", "{}", "7", r#"{"a":1,"b":2}"#, r#"{"timed":{}}"#] {
        assert!(matches!(AnyCommand::decode(text), Err(Error::NotACommand(_))), "{text}");
    }
    assert!(AnyCommand::decode(&deep).is_err());
}

#[test]
fn an_unknown_or_malformed_field_of_a_command_is_an_error() {
    for command in exchanges().commands {
        let is_timed = matches!(command, AnyCommand::Timed(_));
        if is_timed || command == AnyCommand::AlreadyApplied(AlreadyApplied) {
            continue;
        }
        for text in [with_field(&command, "surprise", true.into()), format!("{{\"{}\":7}}", command.name())] {
            let Err(Error::Fields { command: name, .. }) = AnyCommand::decode(&text) else {
                panic!("{text}")
            };
            assert_eq!(name, command.name());
        }
    }
    let open = AnyCommand::from(open_request(Caller::SpendKey(key_hash())));
    for (field, value) in [("now", "yesterday"), ("request_id", "con_1"), ("caller", "anyone"), ("size", "")]
    {
        let text = with_field(&open, field, value.into());
        assert!(matches!(AnyCommand::decode(&text), Err(Error::Fields { .. })), "{text}");
    }
}

#[test]
fn a_command_that_is_cut_off_is_an_error() {
    for command in exchanges().commands {
        let text = command.encode();
        for (end, _) in text.char_indices() {
            assert!(AnyCommand::decode(&text[..end]).is_err(), "{}", &text[..end]);
        }
    }
}

#[test]
fn an_answer_to_another_command_or_an_unknown_refusal_is_an_error() {
    let answer = encode_answer(&Ok(AnyOutcome::DefineMeter("slug".to_owned())));
    for text in [answer.as_str(), r#"{"Err":{"wallet":"haunted"}}"#, r#"{"Err":{"moon":"full"}}"#, "", "{}"] {
        let Err(Error::Answer { command, .. }) = decode_answer::<OpenRequest>(text) else { panic!("{text}") };
        assert_eq!(command, "open_request");
    }
}

/// Gateways of the release before answer a settlement without a value, and read no other answer. They take any other for a
/// lost one, and look for the end of the call in the log.
#[test]
fn the_answer_to_the_settlement_of_a_peer_has_no_value_and_is_read_with_and_without_one() {
    for (outcome, written) in [
        (None, r#"{"Ok":null}"#),
        (Some(FailureReason::UsageInvalid), r#"{"Ok":"usage_invalid"}"#),
        (Some(FailureReason::Abandoned), r#"{"Ok":"abandoned"}"#),
    ] {
        assert_eq!(decode_answer::<SettleRequest>(written).unwrap(), Ok(outcome));
        let to_peer = encode_answer(&Ok(AnyOutcome::SettleRequest(outcome).for_peers()));
        assert_eq!(to_peer, r#"{"Ok":null}"#);
        assert_eq!(to_peer, encode_answer(&Ok(AnyOutcome::AlreadyApplied(()))), "as of the release before");
        let timed = AnyOutcome::Timed(Box::new((AnyOutcome::SettleRequest(outcome), DateTime::UNIX_EPOCH)));
        let to_peer = encode_answer(&Ok(timed.for_peers()));
        let read = decode_answer::<Timed<SettleRequest>>(&to_peer).unwrap();
        assert_eq!(read, Ok((None, DateTime::UNIX_EPOCH)));
    }
    let other = AnyOutcome::AutoRecharge(None);
    assert_eq!(other.clone().for_peers(), other);
}

/// A leader of a release before refuses a field that it does not know, and so no key that is to be paused is made active.
#[test]
fn a_new_key_names_its_status_only_if_it_is_paused() {
    let create = |status| CreateSpendKey {
        merchant_id: MERCHANT,
        spend_key_id: SPEND_KEY,
        customer_id: None,
        key_hash: key_hash(),
        key_preview: String::new(),
        settings: SpendKeySettings::default(),
        status,
        now: DateTime::UNIX_EPOCH,
    };
    let written = |status| AnyCommand::from(create(status)).encode();
    assert!(!written(SpendKeyStatus::Active).contains("status"));
    assert!(written(SpendKeyStatus::Paused).contains(r#""status":"paused""#));
    for status in [SpendKeyStatus::Active, SpendKeyStatus::Paused] {
        let read = AnyCommand::decode(&written(status)).unwrap();
        assert_eq!(read, AnyCommand::from(create(status)));
    }
}

#[test]
fn debug_output_shows_no_personal_data_and_no_whole_hash() {
    for command in exchanges().commands {
        let shown = format!("{command:?}");
        assert_eq!(shown, format!("AnyCommand({})", command.name()));
    }
    let shown = format!("{:?} {:?} {:?}", create_customer(), issue_secret_key(), spend_key());
    assert!(!shown.contains("zoe") && !shown.contains(key_hash().as_str()), "{shown}");
}
