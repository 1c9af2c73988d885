//! Ends the process with a task that nothing would start again: it would run on and do nothing that the others rely on.

/// Aborts the process when its task panics. It says what the task is.
pub(crate) struct AbortOnPanic(pub(crate) &'static str);

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let task = self.0;
            tracing::error!(
                event = "process.aborted",
                task,
                "a task that is always needed panicked; the process aborts"
            );
            std::process::abort();
        }
    }
}
