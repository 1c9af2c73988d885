//! The read models and the templates of their tables. Invariant: a template names no Postgres schema but `{schema}`, so
//! that a generation can be built beside the live one.

use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest as _, Sha256};

/// The placeholder for the Postgres schema in a template.
pub const SCHEMA_PLACEHOLDER: &str = "{schema}";

/// The version of all folds. Increment it when a fold makes different rows from the same events; every read model is
/// then rebuilt.
const FOLDS: &str = "1";

const GENERATION_PLACEHOLDER: &str = "{generation}";
const CHECKPOINT: &str = include_str!("../read_models/checkpoint.sql");
const GRANTS: &str = include_str!("../read_models/grants.sql");

/// A read model: tables folded from the log, in a separate Postgres schema.
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
    /// Sums over forwarded calls, per quarter of an hour.
    Usage,
    /// Payment methods.
    PaymentMethods,
    /// Plans and their credit bundles.
    Plans,
    /// Subscriptions.
    Subscriptions,
    /// The entries of wallets.
    Entries,
    /// The events of merchants, and their accounts.
    Journal,
}

impl ReadModel {
    /// All read models.
    pub const ALL: [Self; 13] = [
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
        Self::Entries,
        Self::Journal,
    ];

    /// The name, which is also the Postgres schema of the first generation.
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
            Self::Entries => "entries",
            Self::Journal => "journal",
        }
    }

    /// The read model with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.name() == name)
    }

    /// The tables that hold its rows.
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
            Self::Entries => &["entries", "wallets"],
            Self::Journal => &["blocks", "customer_blocks", "books"],
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
            Self::Entries => include_str!("../read_models/entries.sql"),
            Self::Journal => include_str!("../read_models/journal.sql"),
        }
    }

    /// The Postgres schema of a generation of this program's version, where the read model's name is taken by an earlier
    /// generation: `customers_v1a2b3c4d`.
    pub fn schema_of_version(self) -> String {
        let [a, b, c, d, ..] = self.version().to_be_bytes();
        format!("{}_v{a:02x}{b:02x}{c:02x}{d:02x}", self.name())
    }

    /// The columns that only the tests' next release has.
    fn next_columns(self) -> &'static str {
        match self {
            Self::Requests if IS_NEXT.load(Ordering::Relaxed) => {
                "ALTER TABLE {schema}.opened ADD COLUMN id_length integer\n\
                 GENERATED ALWAYS AS (length(request_id)) STORED;\n"
            }
            Self::Customers if IS_NEXT.load(Ordering::Relaxed) => {
                "ALTER TABLE {schema}.customers ADD COLUMN id_length integer\n\
                 GENERATED ALWAYS AS (length(customer_id)) STORED;\n"
            }
            Self::Customers
            | Self::Connections
            | Self::Meters
            | Self::SpendKeys
            | Self::SecretKeys
            | Self::CheckoutSessions
            | Self::Requests
            | Self::Usage
            | Self::PaymentMethods
            | Self::Plans
            | Self::Subscriptions
            | Self::Entries
            | Self::Journal => "",
        }
    }

    /// The version of its shape: the first 8 bytes of SHA-256 over the definition of its tables and the version of the
    /// folds, so that it changes when either changes. Comments and white space do not count.
    pub fn version(self) -> i64 {
        version_of(&self.ddl("s", 0))
    }

    /// The statements that create an empty generation in the Postgres schema `schema`.
    pub fn ddl(self, schema: &str, generation: i32) -> String {
        [CHECKPOINT, self.template(), self.next_columns(), GRANTS]
            .concat()
            .replace(SCHEMA_PLACEHOLDER, schema)
            .replace(GENERATION_PLACEHOLDER, &generation.to_string())
    }
}

/// Whether this process is of the release that the tests of upgrades take for the next one. Always false in a release
/// build.
static IS_NEXT: AtomicBool = AtomicBool::new(false);

/// Makes this process one of the next release in tests, for good: requests and customers have another column. Call it
/// before anything else.
#[cfg(debug_assertions)]
pub fn become_next_release() {
    IS_NEXT.store(true, Ordering::Relaxed);
}

/// The version of the shape that the statements `ddl` create.
fn version_of(ddl: &str) -> i64 {
    let lines = ddl.lines().map(|line| line.split("--").next().unwrap_or_default());
    let mut digest = Sha256::new();
    for word in lines.flat_map(str::split_whitespace).chain([FOLDS]) {
        digest.update(word);
        digest.update(b" ");
    }
    let digest: [u8; 32] = digest.finalize().into();
    let mut version = [0; 8];
    version.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(version)
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

    /// An update that changes an indexed column writes a new entry in every index of the table.
    #[test]
    fn the_journal_indexes_nothing_but_its_primary_keys() {
        assert!(!ReadModel::Journal.ddl("somewhere", 7).contains(" INDEX "));
    }

    #[test]
    fn comments_and_white_space_do_not_change_a_version() {
        let version = version_of("CREATE TABLE s.a (b text);");
        assert_eq!(version_of("-- A table.\nCREATE  TABLE s.a\n    (b text); -- the end\n"), version);
        assert_ne!(version_of("CREATE TABLE s.a (b  text, c text);"), version);
    }
}
