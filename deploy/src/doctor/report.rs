//! The doctor's report: every finding and the verdict over all of them, as text or as JSON.

use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::finding::{Finding, Verdict};

/// All findings.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The worst verdict. Skipped checks do not count.
    verdict: Verdict,
    /// The version of this program.
    version: &'static str,
    checks: Vec<Finding>,
}

impl Report {
    pub(super) fn new(checks: Vec<Finding>) -> Self {
        let counted =
            checks.iter().map(|finding| finding.verdict).filter(|verdict| *verdict != Verdict::Skipped);
        let verdict = counted.max().unwrap_or(Verdict::Ok);
        Self { verdict, version: env!("CARGO_PKG_VERSION"), checks }
    }

    /// As plugins of monitoring have it: 0 if all is well, 1 for warnings, 2 for failures.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self.verdict {
            Verdict::Ok | Verdict::Skipped => ExitCode::SUCCESS,
            Verdict::Warning => ExitCode::from(1),
            Verdict::Failed => ExitCode::from(2),
        }
    }

    /// Writes a paragraph for each check and a last line with the sums.
    pub(super) fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        let width = self.checks.iter().map(|finding| finding.check.len()).max().unwrap_or_default();
        for finding in &self.checks {
            let (style, word) = shown(finding.verdict);
            writeln!(out, "{style}{word:<7}{style:#}  {:<width$}  {}", finding.check, finding.found)?;
            if let Some(advice) = &finding.advice {
                writeln!(out, "{:9}{:<width$}  → {advice}", "", "")?;
            }
        }
        let count = |verdict| self.checks.iter().filter(|finding| finding.verdict == verdict).count();
        let (style, word) = shown(self.verdict);
        writeln!(
            out,
            "\n{style}{word}{style:#}: {} ok, {} warning, {} failed, {} skipped",
            count(Verdict::Ok),
            count(Verdict::Warning),
            count(Verdict::Failed),
            count(Verdict::Skipped)
        )
    }
}

fn shown(verdict: Verdict) -> (Style, &'static str) {
    match verdict {
        Verdict::Ok => (AnsiColor::Green.on_default(), "ok"),
        Verdict::Skipped => (AnsiColor::Cyan.on_default(), "skipped"),
        Verdict::Warning => (AnsiColor::Yellow.on_default(), "warning"),
        Verdict::Failed => (AnsiColor::Red.on_default().bold(), "failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides_and_a_skipped_one_does_not_count() {
        let (ok, skipped) = (Finding::ok("a", "well"), Finding::skipped("b", "no right"));
        let (warning, failed) =
            (Finding::warning("c", "low", "raise it"), Finding::failed("d", "off", "start it"));
        for (checks, verdict) in [
            (vec![], Verdict::Ok),
            (vec![ok.clone(), skipped.clone()], Verdict::Ok),
            (vec![warning.clone(), ok.clone()], Verdict::Warning),
            (vec![warning.clone(), failed.clone(), skipped.clone()], Verdict::Failed),
        ] {
            assert_eq!(Report::new(checks).verdict, verdict);
        }
    }

    #[test]
    fn the_text_has_a_line_for_each_check_and_one_for_what_to_do() {
        let checks = vec![Finding::ok("lag.relay", "0 events"), Finding::failed("a", "off", "start it")];
        let mut text = anstream::StripStream::new(Vec::new());
        Report::new(checks).write_text(&mut text).unwrap();
        let text = String::from_utf8(text.into_inner()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "ok       lag.relay  0 events");
        assert_eq!(lines[1], "failed   a          off");
        assert_eq!(lines[2], "                    → start it");
        assert_eq!(lines[4], "failed: 1 ok, 0 warning, 1 failed, 0 skipped");
    }
}
