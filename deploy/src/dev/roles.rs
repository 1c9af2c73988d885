//! The children that are roles of this program. Secrets reach them by their environment, never by their command
//! line, and they end when their stdin does: by our wish, or because we are gone.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::folder::Folder;
use super::process::{Ending, Plan, Process};
use crate::failure::{Failure, IntoFailure as _};
use crate::gateway::Settings;

const UP_WITHIN: Duration = Duration::from_mins(2);

/// How long a gateway may take to settle what is left after the time of grace, and to end.
const ENDS_AFTER_GRACE: Duration = Duration::from_secs(20);

/// Makes the plans of roles.
pub(super) struct Roles<'a> {
    program: PathBuf,
    folder: &'a Folder,
    database_url: &'a str,
    nats_url: &'a str,
}

impl<'a> Roles<'a> {
    /// Roles on this database and message server.
    pub(super) fn new(folder: &'a Folder, database_url: &'a str, nats_url: &'a str) -> Result<Self, Failure> {
        let program = std::env::current_exe().or_fail("cannot tell where this program is")?;
        Ok(Self { program, folder, database_url, nats_url })
    }

    /// A gateway.
    pub(super) fn gateway(
        &self,
        index: u16,
        listen: SocketAddr,
        sweep_after_seconds: u64,
        grace_seconds: u64,
        settings: &Settings,
    ) -> Result<Plan, Failure> {
        let mut flags = vec![
            "gateway".to_owned(),
            format!("--listen={listen}"),
            format!("--sweep-after-seconds={sweep_after_seconds}"),
            format!("--grace-seconds={grace_seconds}"),
        ];
        flags.extend(settings.flags());
        let secrets = settings.provider_keys.variables()?;
        let patience = Duration::from_secs(grace_seconds) + ENDS_AFTER_GRACE;
        Ok(self.plan(format!("gateway-{index}"), flags, secrets, patience))
    }

    /// A projector.
    pub(super) fn projector(&self, index: u16) -> Plan {
        self.plan(
            format!("projector-{index}"),
            vec!["projector".to_owned()],
            Vec::new(),
            Duration::from_secs(15),
        )
    }

    /// The mock provider.
    pub(super) fn mock_provider(&self, listen: SocketAddr, openai: SocketAddr, no_journal: bool) -> Plan {
        let journal = self.folder.at("mock-journal.ndjson");
        let flags = vec![
            "mock-provider".to_owned(),
            format!("--listen={listen}"),
            format!("--openai-listen={openai}"),
            if no_journal { "--no-journal".to_owned() } else { format!("--journal={}", journal.display()) },
        ];
        self.plan("mock-provider".to_owned(), flags, Vec::new(), Duration::from_secs(5))
    }

    /// Waits until the role has written its ready file.
    pub(super) async fn await_up(&self, process: &Process) -> Result<(), Failure> {
        let ready = self.ready_file(process.name());
        process.await_up(UP_WITHIN, async || ready.exists().then_some(())).await
    }

    fn ready_file(&self, name: &str) -> PathBuf {
        self.folder.at("run").join(format!("{name}.ready.json"))
    }

    fn plan(
        &self,
        name: String,
        flags: Vec<String>,
        secrets: Vec<(String, String)>,
        patience: Duration,
    ) -> Plan {
        let (program, ready) = (self.program.clone(), self.ready_file(&name));
        let (database_url, nats_url) = (self.database_url.to_owned(), self.nats_url.to_owned());
        // What an earlier start left must not be taken for this one's.
        let _ = std::fs::remove_file(&ready);
        let command = move || {
            let mut command = Command::new(&program);
            command.args(&flags).arg("--stop-with-stdin").arg("--ready-file").arg(&ready);
            command.env("FARTHING_DATABASE_URL", &database_url).env("FARTHING_NATS_URL", &nats_url);
            for name in ["FARTHING_ALLOW_ADDRESS", "FARTHING_PROVIDER_HOST", "FARTHING_PRICES"] {
                command.env_remove(name);
            }
            command.envs(secrets.iter().map(|(name, key)| (name, key)));
            Ok(command)
        };
        let log = self.folder.log(&name);
        Plan { name, command: Box::new(command), ails: None, log, ending: Ending::CloseStdin, patience }
    }
}
