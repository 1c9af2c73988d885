//! Reconciliations of the log: calls that somebody must look at, payments against the processor's list, usage against a
//! provider's export. The log is verified while it is read.

pub mod calls;
pub mod payments;
pub mod usage;
