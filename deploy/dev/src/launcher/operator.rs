//! Operator commands on the instance's database, run as subcommands of the `farthing` program.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use farthing_core::ids::{CustomerId, MerchantId};
use farthing_core::secret::ServerKey;
use serde::Deserialize;
use serde_json::Value;

use super::Servers;
use super::account::child_command;

/// Runs operator commands. Secrets reach them in their environment, never on their command line.
pub(super) struct Operator<'a> {
    /// The `farthing` program.
    pub(super) program: &'a Path,
    /// The instance's database.
    pub(super) database_url: &'a str,
    /// The server key that replaces the one kept in the database.
    pub(super) server_key: Option<&'a ServerKey>,
}

/// A new merchant.
#[derive(Deserialize)]
pub(super) struct NewMerchant {
    /// Its id.
    pub(super) merchant_id: MerchantId,
    /// Its first secret key.
    pub(super) secret_key: String,
}

impl Operator<'_> {
    /// Creates or upgrades the database, in test mode.
    pub(super) async fn migrate(&self, servers: Servers) -> Result<()> {
        let arguments: &[&str] = match servers {
            Servers::Single => &["migrate", "--mode=test"],
            Servers::Cluster => &["migrate", "--mode=test", "--citus"],
        };
        self.run(arguments).await.map(drop)
    }

    /// Creates a merchant.
    pub(super) async fn create_merchant(&self, name: &str) -> Result<NewMerchant> {
        let created = self.run(&["merchant", "create", &format!("--name={name}")]).await?;
        serde_json::from_value(created).context("cannot read the output of `farthing merchant create`")
    }

    /// Credits a customer's wallet.
    pub(super) async fn credit_customer(&self, id: CustomerId, amount: &str, reason: &str) -> Result<()> {
        self.credit(&format!("--connection={id}"), amount, reason).await
    }

    /// Credits a merchant's own wallet.
    pub(super) async fn credit_merchant(&self, id: MerchantId, amount: &str, reason: &str) -> Result<()> {
        self.credit(&format!("--merchant={id}"), amount, reason).await
    }

    async fn credit(&self, wallet: &str, amount: &str, reason: &str) -> Result<()> {
        let (amount, reason) = (format!("--amount={amount}"), format!("--reason={reason}"));
        self.run(&["wallet", "credit", wallet, &amount, &reason]).await.map(drop)
    }

    /// Runs a subcommand to its end; returns its result. Its error output goes to this process's stderr.
    async fn run(&self, arguments: &[&str]) -> Result<Value> {
        let words: Vec<_> = arguments.iter().copied().filter(|word| !word.starts_with('-')).collect();
        let shown = format!("`farthing {}`", words.join(" "));
        let mut command = child_command(self.program, "TERM");
        command.args(arguments).arg("--json").env("FARTHING_DATABASE_URL", self.database_url);
        command.env_remove("FARTHING_DATABASE_URL_FILE");
        if let Some(key) = self.server_key {
            command.env("FARTHING_SERVER_KEY", key.to_hex());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        // Ctrl-C at the terminal reaches the launcher only, which then drops this future and so kills the command.
        command.process_group(0);
        let child = tokio::process::Command::from(command).kill_on_drop(true).spawn();
        let output = child.with_context(|| format!("cannot start {shown}"))?.wait_with_output().await;
        let output = output.with_context(|| format!("cannot run {shown}"))?;
        ensure!(output.status.success(), "{shown} failed: {}", output.status);
        serde_json::from_slice(&output.stdout).with_context(|| format!("cannot read the output of {shown}"))
    }
}
