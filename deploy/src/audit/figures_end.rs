//! What every text with figures from the log says of the log: how far it was read, and whether it has errors. Whoever files
//! the text sees neither stderr nor the exit code.

use std::io::{self, Write};

use farthing_log::audit::Findings;
use farthing_log::verify::Head;

/// Writes the end of each partition that was read, and the warning if the log has errors.
pub(super) fn write(out: &mut impl Write, heads: &[Head], findings: &Findings) -> io::Result<()> {
    for Head { partition, position, hash } in heads.iter().filter(|head| head.position > 0) {
        writeln!(out, "partition {partition}: read to position {position}, hash {hash}")?;
    }
    if let Some(warning) = findings.warning() {
        writeln!(out, "{warning}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use farthing_core::partition::Partition;

    use super::*;

    #[test]
    fn heads_of_empty_partitions_are_left_out_and_errors_are_said() {
        let head = |partition, position| Head {
            partition: Partition::new(partition),
            position,
            hash: format!("{position:02x}"),
        };
        let written = |findings_count| {
            let mut out = Vec::new();
            let findings = Findings { findings: Vec::new(), findings_count };
            write(&mut out, &[head(0, 0), head(1, 23)], &findings).unwrap();
            String::from_utf8(out).unwrap()
        };
        let read = "partition 1: read to position 23, hash 17\n";
        assert_eq!(written(0), read);
        let warning = "the log has errors: 1 finding; these figures are not proven\n";
        assert_eq!(written(1), format!("{read}{warning}"));
    }
}
