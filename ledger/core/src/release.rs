//! The release that the tests of upgrades take for the next one. It exists in debug builds alone: a release build has no
//! code for it.
//!
//! Building the program twice would take too long, so a test starts the same one with
//! `FARTHING_TEST_NEXT_RELEASE=form` or `fold`, and the program reads that once at its start.

/// What the next release changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The stored form of wallets. A stored state of the release before can be read.
    Form,
    /// The fold of wallets, which count their debits. They follow from the log alone.
    Fold,
}

#[cfg(debug_assertions)]
static NEXT: std::sync::OnceLock<Change> = std::sync::OnceLock::new();

/// Makes this process one of the next release, for good. Call it before anything else.
#[cfg(debug_assertions)]
pub fn become_next(change: Change) {
    let _ = NEXT.set(change);
}

/// What this process changes as the next release; `None` outside of tests.
#[cfg(debug_assertions)]
pub fn next() -> Option<Change> {
    NEXT.get().copied()
}

/// What this process changes as the next release; `None` outside of tests.
#[cfg(not(debug_assertions))]
pub const fn next() -> Option<Change> {
    None
}
