//! The exit code of the commands that judge the ledger: `audit`, `export`, `archive`, `projections` and `log`, and of `prices
//! compare`. There is one rule:
//!
//! - 0: the command did what it was asked to, and found nothing wrong.
//! - 1: something is wrong with the log or with what was made of it, or a difference was found.
//! - 2: the command could not run or was refused, so nothing is known.
//! - 3: nothing that was looked at is wrong, but the command could not look at everything that it was asked to.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use farthing_log::audit::Findings;
use farthing_log::{archive, audit, verify};

use crate::output::print_error;

/// Something is wrong, or differs.
const BROKEN: u8 = 1;

/// The command could not run. The parser of the command line ends with the same code.
const COULD_NOT_RUN: u8 = 2;

/// A part could not be looked at.
const INCOMPLETE: u8 = 3;

/// What a command that ran found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Soundness {
    /// Nothing is wrong, and nothing differs.
    Sound,
    /// Something is wrong, or differs. The command has said what.
    Broken,
    /// Nothing is wrong with what was looked at, but a part could not be. The command has said why.
    Incomplete,
}

impl Soundness {
    /// Broken if the log has findings, which are printed on stderr.
    pub(crate) fn of(findings: &Findings) -> Self {
        for finding in &findings.findings {
            print_error(&anyhow!("{finding}"));
        }
        let Some(warning) = findings.warning() else { return Self::Sound };
        print_error(&anyhow!(warning));
        Self::Broken
    }

    /// Broken as well if this report of the command says so.
    pub(crate) const fn and(self, is_sound: bool) -> Self {
        match self {
            Self::Broken => Self::Broken,
            _ if !is_sound => Self::Broken,
            Self::Sound | Self::Incomplete => self,
        }
    }

    /// The exit code of a command that ran to its end, or failed with an error, which is printed on stderr.
    pub(crate) fn exit_code(result: Result<Self>) -> ExitCode {
        let soundness = result.inspect_err(print_error);
        match soundness {
            Ok(Self::Sound) => ExitCode::SUCCESS,
            Ok(Self::Broken) => ExitCode::from(BROKEN),
            Ok(Self::Incomplete) => ExitCode::from(INCOMPLETE),
            Err(error) if is_of_the_ledger(&error) => ExitCode::from(BROKEN),
            Err(_) => ExitCode::from(COULD_NOT_RUN),
        }
    }
}

/// Whether a command was stopped by what is wrong with the log, and not by its surroundings.
fn is_of_the_ledger(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<audit::Error>().is_some_and(audit::Error::is_of_the_events)
            || cause.downcast_ref::<verify::Error>().is_some_and(verify::Error::is_of_the_events)
            || cause.downcast_ref::<archive::Error>().is_some_and(archive::Error::is_of_the_events)
            || cause
                .downcast_ref::<farthing_projector::Error>()
                .is_some_and(farthing_projector::Error::is_of_the_events)
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use farthing_core::partition::Partition;
    use farthing_log::reader;

    use super::*;

    fn gap() -> reader::Error {
        reader::Error::Gap { partition: Partition::new(3), expected: 5, found: 7 }
    }

    fn archived() -> reader::Error {
        let location = "file:///nowhere".to_owned();
        reader::Error::Archived { partition: Partition::new(3), first: 1, last: 9, location }
    }

    /// The exit code that an error ends with, beneath what the command says of it.
    fn code(error: impl Into<anyhow::Error>) -> ExitCode {
        Soundness::exit_code(Err(error.into()).context("cannot verify").context("nothing was exported"))
    }

    #[test]
    fn a_log_that_is_not_what_was_appended_is_1_and_one_that_cannot_be_read_is_2() {
        let broken = ExitCode::from(1);
        assert_eq!(code(audit::Error::Log(gap())), broken);
        assert_eq!(code(verify::Error::Log(gap())), broken);
        assert_eq!(code(archive::Error::Log(gap())), broken);
        assert_eq!(code(farthing_projector::Error::Log(gap())), broken);
        let refused = ExitCode::from(2);
        assert_eq!(code(audit::Error::Log(archived())), refused);
        assert_eq!(code(verify::Error::Log(archived())), refused);
        assert_eq!(code(archive::Error::Log(archived())), refused);
        assert_eq!(code(farthing_projector::Error::Log(archived())), refused);
        assert_eq!(code(audit::Error::NoPartitions), refused);
        assert_eq!(code(anyhow!("--to is not after --from")), refused);
    }

    #[test]
    fn a_command_is_broken_once_anything_is() {
        let sound = Soundness::of(&Findings::default());
        assert_eq!(
            (sound, sound.and(true), sound.and(false)),
            (Soundness::Sound, Soundness::Sound, Soundness::Broken)
        );
        assert_eq!(Soundness::Broken.and(true), Soundness::Broken);
        assert_eq!(Soundness::exit_code(Ok(Soundness::Sound)), ExitCode::SUCCESS);
        assert_eq!(Soundness::exit_code(Ok(Soundness::Broken)), ExitCode::from(1));
        assert_eq!(Soundness::exit_code(Ok(Soundness::Incomplete)), ExitCode::from(3));
        assert_eq!(Soundness::Incomplete.and(false), Soundness::Broken);
    }
}
