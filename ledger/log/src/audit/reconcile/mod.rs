//! Reconciliations of the log: calls that somebody must look at, payments against the processor's list, usage against a
//! provider's export. The log is verified while it is read.

pub mod calls;
pub mod payments;
pub mod usage;

use farthing_core::ids::RequestId;

use super::findings::{Findings, Place};

/// Adds the end of a call that is not open: its opening is not in the log, or it ended before.
fn find_unopened(findings: &mut Findings, place: Place, request_id: RequestId, so: impl std::fmt::Display) {
    findings.find(|| format!("{place}: {request_id} ends, and is not open: {so}"));
}
