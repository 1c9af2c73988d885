//! Templates of the read models' tables. Invariant: a template names no Postgres schema but `{schema}`, so that
//! a generation can be built beside the live one.

/// What a template calls its Postgres schema.
pub const SCHEMA_PLACEHOLDER: &str = "{schema}";

/// Goes up when a fold comes to other rows from the same events: every read model is then built anew.
const FOLDS: &str = "1";

const GENERATION_PLACEHOLDER: &str = "{generation}";
const CHECKPOINT: &str = include_str!("../read_models/checkpoint.sql");
const GRANTS: &str = include_str!("../read_models/grants.sql");

/// A read model: tables folded from the log, in a Postgres schema of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadModel {
    /// Customers.
    Customers,
    /// Connections and their wallets.
    Connections,
    /// Meters.
    Meters,
    /// Spend keys.
    SpendKeys,
    /// Secret keys.
    SecretKeys,
    /// Checkout sessions.
    CheckoutSessions,
    /// Forwarded calls.
    Requests,
    /// Sums of forwarded calls.
    Usage,
    /// Payment methods.
    PaymentMethods,
    /// Plans and their credit bundles.
    Plans,
    /// Subscriptions.
    Subscriptions,
}

impl ReadModel {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Customers,
        Self::Connections,
        Self::Meters,
        Self::SpendKeys,
        Self::SecretKeys,
        Self::CheckoutSessions,
        Self::Requests,
        Self::Usage,
        Self::PaymentMethods,
        Self::Plans,
        Self::Subscriptions,
    ];

    /// Its name, which is also the Postgres schema of its live generation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Customers => "customers",
            Self::Connections => "connections",
            Self::Meters => "meters",
            Self::SpendKeys => "spend_keys",
            Self::SecretKeys => "secret_keys",
            Self::CheckoutSessions => "checkout_sessions",
            Self::Requests => "requests",
            Self::Usage => "usage",
            Self::PaymentMethods => "payment_methods",
            Self::Plans => "plans",
            Self::Subscriptions => "subscriptions",
        }
    }

    /// The read model of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.name() == name)
    }

    /// Its tables that hold rows.
    pub const fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Customers => &["customers"],
            Self::Connections => &["connections", "wallets"],
            Self::Meters => &["meters"],
            Self::SpendKeys => &["spend_keys", "spending"],
            Self::SecretKeys => &["secret_keys"],
            Self::CheckoutSessions => &["checkout_sessions"],
            Self::Requests => &["opened", "ended", "metadata_pairs"],
            Self::Usage => &["quarters"],
            Self::PaymentMethods => &["payment_methods"],
            Self::Plans => &["plans", "credit_bundles", "meter_slugs"],
            Self::Subscriptions => &["subscriptions", "bundle_credit"],
        }
    }

    const fn template(self) -> &'static str {
        match self {
            Self::Customers => include_str!("../read_models/customers.sql"),
            Self::Connections => include_str!("../read_models/connections.sql"),
            Self::Meters => include_str!("../read_models/meters.sql"),
            Self::SpendKeys => include_str!("../read_models/spend_keys.sql"),
            Self::SecretKeys => include_str!("../read_models/secret_keys.sql"),
            Self::CheckoutSessions => include_str!("../read_models/checkout_sessions.sql"),
            Self::Requests => include_str!("../read_models/requests.sql"),
            Self::Usage => include_str!("../read_models/usage.sql"),
            Self::PaymentMethods => include_str!("../read_models/payment_methods.sql"),
            Self::Plans => include_str!("../read_models/plans.sql"),
            Self::Subscriptions => include_str!("../read_models/subscriptions.sql"),
        }
    }

    /// The Postgres schema of a generation that is not (or no longer) the live one.
    pub fn generation_schema(self, generation: i32) -> String {
        format!("{}_g{generation}", self.name())
    }

    /// The version of its shape: a digest of its tables' definition and of the version of the folds, so that it is
    /// another whenever either changes. Comments and blanks do not count.
    pub fn version(self) -> i64 {
        let ddl = self.ddl("s", 0);
        let lines = ddl.lines().map(|line| line.split("--").next().unwrap_or_default());
        let words = lines.flat_map(str::split_whitespace).chain([FOLDS]);
        // FNV-1a, of 64 bits.
        let digest =
            words.flat_map(|word| word.bytes().chain([b' '])).fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
                (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        i64::from_ne_bytes(u64::to_ne_bytes(digest))
    }

    /// The statements that create an empty generation in the Postgres schema `schema`.
    pub fn ddl(self, schema: &str, generation: i32) -> String {
        [CHECKPOINT, self.template(), GRANTS]
            .concat()
            .replace(SCHEMA_PLACEHOLDER, schema)
            .replace(GENERATION_PLACEHOLDER, &generation.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_creates_nothing_outside_its_schema() {
        for model in ReadModel::ALL {
            let ddl = model.ddl("somewhere", 7);
            assert!(!ddl.contains(SCHEMA_PLACEHOLDER) && !ddl.contains(GENERATION_PLACEHOLDER), "{ddl}");
            for line in ddl.lines() {
                let creates =
                    line.strip_prefix("CREATE TABLE ").or_else(|| line.strip_prefix("CREATE VIEW "));
                assert!(creates.is_none_or(|name| name.starts_with("somewhere.")), "{line}");
            }
            assert_eq!(ReadModel::named(model.name()), Some(model));
        }
        assert_eq!(ReadModel::named("events"), None);
    }

    #[test]
    fn each_read_model_has_a_version_of_its_own() {
        let mut versions: Vec<_> = ReadModel::ALL.into_iter().map(ReadModel::version).collect();
        versions.sort_unstable();
        versions.dedup();
        assert_eq!(versions.len(), ReadModel::ALL.len());
        assert_eq!(ReadModel::Usage.version(), ReadModel::Usage.version());
    }
}
